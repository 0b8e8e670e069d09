/* Tests may ask where they run. */
void f(void)
{
	getenv("EGRESS_TMP");
	assert_true(1);
	atoi("1"); /* BAD */
}
