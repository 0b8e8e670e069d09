/* The one reader. */
void f(void)
{
	getenv("HOME");
}
