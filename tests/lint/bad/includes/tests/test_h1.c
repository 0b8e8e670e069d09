/* Tests may include anything that exists. */
#include <cmocka.h>

#include "policy/rule_int.h"
#include "proxy/h1.h"
#include "proxy/none.h" /* BAD */
