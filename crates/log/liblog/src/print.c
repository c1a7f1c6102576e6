/*
 * Messages by printf's rules. Stable Rust defines no function that takes "...", so these are C; the names that
 * programs call are in print.rs, and jump here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* An entry's payload, as liblog's headers have it. */
#define MAX_TEXT_BYTES 4068
/* Of <android/log.h>. */
enum { VERBOSE = 2, FATAL = 7, MAIN = 0 };
/* Of <errno.h>, negative as liblog answers it. */
enum { NOT_PERMITTED = -1 };

int __android_log_buf_write(int buffer, int priority, const char *tag, const char *text);
int __android_log_is_loggable(int priority, const char *tag, int least);
void __android_log_call_aborter(const char *message);

static int print(int buffer, int priority, const char *tag, const char *format, va_list values)
{
	char text[MAX_TEXT_BYTES];

	if (!__android_log_is_loggable(priority, tag, VERBOSE))
		return NOT_PERMITTED;
	if (!format || vsnprintf(text, sizeof(text), format, values) < 0)
		text[0] = 0;
	return __android_log_buf_write(buffer, priority, tag, text);
}

int baton_liblog_vprint(int priority, const char *tag, const char *format, va_list values)
{
	return print(MAIN, priority, tag, format, values);
}

int baton_liblog_print(int priority, const char *tag, const char *format, ...)
{
	va_list values;
	int result;

	va_start(values, format);
	result = print(MAIN, priority, tag, format, values);
	va_end(values);
	return result;
}

int baton_liblog_buf_print(int buffer, int priority, const char *tag, const char *format, ...)
{
	va_list values;
	int result;

	va_start(values, format);
	result = print(buffer, priority, tag, format, values);
	va_end(values);
	return result;
}

_Noreturn void baton_liblog_assert(const char *condition, const char *tag, const char *format, ...)
{
	char text[MAX_TEXT_BYTES];
	va_list values;

	va_start(values, format);
	if (format)
		vsnprintf(text, sizeof(text), format, values);
	else if (condition)
		snprintf(text, sizeof(text), "Assertion failed: %s", condition);
	else
		snprintf(text, sizeof(text), "Unspecified assertion failed");
	va_end(values);
	fprintf(stderr, "%s\n", text);
	__android_log_buf_write(MAIN, FATAL, tag, text);
	__android_log_call_aborter(text);
	/* An aborter that returns. */
	abort();
}
