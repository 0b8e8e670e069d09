/* The clocks of the kernel, RFC 3339 text of a wall time, and the fake clocks of tests. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/slice.h"

#define US_PER_S 1000000U
#define YEAR_FIRST 1970 /* wall_us cannot hold an earlier time */
#define YEAR_LAST 9999  /* RFC 3339 has four digits */

struct clock_faked {
	bool on;
	uint64_t mono_us;
	uint64_t wall_us;
};

/* The one place that a test must reach without a handle. Never written in a release. */
static struct clock_faked clock_faked;

static uint64_t clock_read_us(clockid_t id)
{
	struct timespec ts;

	REQUIRE(clock_gettime(id, &ts) == 0);
	if (ts.tv_sec < 0)
		return 0;
	return (uint64_t)ts.tv_sec * US_PER_S + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t clock_mono_us(void)
{
	return clock_faked.on ? clock_faked.mono_us : clock_read_us(CLOCK_BOOTTIME);
}

uint64_t clock_mono_ms(void)
{
	return clock_mono_us() / 1000;
}

uint64_t clock_wall_us(void)
{
	return clock_faked.on ? clock_faked.wall_us : clock_read_us(CLOCK_REALTIME);
}

void clock_fake(uint64_t mono_us, uint64_t wall_us)
{
	clock_faked = (struct clock_faked){true, mono_us, wall_us};
}

static void clock_digits(char *at, unsigned v, size_t n)
{
	while (n > 0) {
		at[--n] = (char)('0' + v % 10);
		v /= 10;
	}
}

void clock_text(uint64_t wall_us, char buf[CLOCK_TEXT_MAX])
{
	static const uint64_t last = 253402300799ULL * US_PER_S + (US_PER_S - 1);
	struct tm tm;
	time_t s;

	/* A text of fixed width is worth more than a year 10000. */
	if (wall_us > last)
		wall_us = last;
	s = (time_t)(wall_us / US_PER_S);
	REQUIRE(gmtime_r(&s, &tm));
	memcpy(buf, "0000-00-00T00:00:00.000000Z", CLOCK_TEXT_MAX);
	clock_digits(buf, (unsigned)tm.tm_year + 1900, 4);
	clock_digits(buf + 5, (unsigned)tm.tm_mon + 1, 2);
	clock_digits(buf + 8, (unsigned)tm.tm_mday, 2);
	clock_digits(buf + 11, (unsigned)tm.tm_hour, 2);
	clock_digits(buf + 14, (unsigned)tm.tm_min, 2);
	clock_digits(buf + 17, (unsigned)tm.tm_sec, 2);
	clock_digits(buf + 20, (unsigned)(wall_us % US_PER_S), 6);
}

/* Takes n digits off the front of *p. */
static bool clock_take(const char **p, size_t n, int *out)
{
	int v = 0;

	for (size_t i = 0; i < n; i++) {
		if (!ascii_digit((*p)[i]))
			return false;
		v = v * 10 + ((*p)[i] - '0');
	}
	*p += n;
	*out = v;
	return true;
}

static bool clock_take_char(const char **p, char c)
{
	if (**p != c)
		return false;
	(*p)++;
	return true;
}

static bool clock_take_date(const char **p, struct tm *tm)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int year, month, day, last;

	if (!clock_take(p, 4, &year) || !clock_take_char(p, '-') || !clock_take(p, 2, &month) ||
		!clock_take_char(p, '-') || !clock_take(p, 2, &day))
		return false;
	if (year < YEAR_FIRST || year > YEAR_LAST || month < 1 || month > 12)
		return false;
	last = days[month - 1];
	if (month == 2 && (year % 4 == 0) && (year % 100 != 0 || year % 400 == 0))
		last = 29;
	if (day < 1 || day > last)
		return false;
	tm->tm_year = year - 1900;
	tm->tm_mon = month - 1;
	tm->tm_mday = day;
	return true;
}

/* "Z", or what the time is ahead of UTC: "+01:00". */
static bool clock_take_offset(const char **p, int *seconds)
{
	bool behind = **p == '-';
	int hours, minutes;

	*seconds = 0;
	if (clock_take_char(p, 'Z'))
		return true;
	if (!clock_take_char(p, behind ? '-' : '+') || !clock_take(p, 2, &hours) ||
		!clock_take_char(p, ':') || !clock_take(p, 2, &minutes) || hours > 23 ||
		minutes > 59)
		return false;
	*seconds = (hours * 60 + minutes) * (behind ? -60 : 60);
	return true;
}

/* "T00:00:00", with a fraction, of which six digits count, then the offset. */
static bool clock_take_time(const char **p, struct tm *tm, uint64_t *us, int *ahead)
{
	uint64_t scale = US_PER_S;

	if (!clock_take_char(p, 'T') || !clock_take(p, 2, &tm->tm_hour) ||
		!clock_take_char(p, ':') || !clock_take(p, 2, &tm->tm_min) ||
		!clock_take_char(p, ':') || !clock_take(p, 2, &tm->tm_sec))
		return false;
	if (tm->tm_hour > 23 || tm->tm_min > 59 || tm->tm_sec > 59)
		return false;
	*us = 0;
	if (clock_take_char(p, '.')) {
		if (!ascii_digit(**p))
			return false;
		while (ascii_digit(**p)) {
			scale /= 10;
			*us += (uint64_t)(**p - '0') * scale;
			(*p)++;
		}
	}
	return clock_take_offset(p, ahead);
}

bool clock_parse(const char *text, uint64_t *wall_us)
{
	struct tm tm = {0};
	uint64_t us = 0;
	int ahead = 0;
	time_t s;

	if (!clock_take_date(&text, &tm))
		return false;
	if (*text != '\0' && !clock_take_time(&text, &tm, &us, &ahead))
		return false;
	if (*text != '\0')
		return false;
	s = timegm(&tm) - ahead;
	if (s < 0)
		return false;
	*wall_us = (uint64_t)s * US_PER_S + us;
	return true;
}
