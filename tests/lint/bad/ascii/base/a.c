/* Right. */
/* Naïve. BAD */
const char *x = "\xc3\xaf";
