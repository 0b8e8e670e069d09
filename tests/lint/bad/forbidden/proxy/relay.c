/* The data path is ours. */
void f(void)
{
	evbuffer_new();              /* BAD */
	bufferevent_free(0);         /* BAD */
}
