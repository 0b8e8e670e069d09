/* strcpy( in a comment is no call. */
typedef struct thing thing; /* BAD */
static const char *text = "sprintf(";

void f(char *to, const char *from)
{
	strcpy(to, from);          /* BAD */
	sprintf (to, "%s", from);  /* BAD */
	my_strcpy(to, from);
	snprintf(to, 3, "%s", from);
	strtok(to, ",");           /* BAD */
	to[0] = atoi(from);        /* BAD */
	alloca(3);                 /* BAD */
	assert(to != 0);           /* BAD */
	static_assert(1, "fine");
	getenv("HOME");            /* BAD */
	getaddrinfo(to, 0, 0, 0);  /* BAD */
	system(to);                /* BAD */
	s->system(to);
}
