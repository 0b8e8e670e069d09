/* A test. */
static void test_one(void **state);
static void test_two(void **state);
