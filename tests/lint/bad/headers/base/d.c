#include <errno.h> /* BAD */
