/* TODO later. BAD */
/* mkstemp("aXXXXXX") is fine. */
/* A hack in small letters is a word. */
/* Good enough for now. BAD */
