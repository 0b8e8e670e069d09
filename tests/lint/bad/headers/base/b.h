/* An old guard. */
#ifndef B_H /* BAD */
#define B_H
#endif
