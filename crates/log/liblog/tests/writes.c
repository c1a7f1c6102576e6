/*
 * Everything that writes, as a program built against Android's headers calls it.
 */
#define LOG_TAG "Tagged"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <log/log.h>
#include <log/log_event_list.h>
#include <log/log_properties.h>

static int vprinted(int priority, const char *tag, const char *format, ...)
{
	va_list values;
	int result;

	va_start(values, format);
	result = __android_log_vprint(priority, tag, format, values);
	va_end(values);
	return result;
}

static void texts(void)
{
	printf("%d\n", __android_log_write(ANDROID_LOG_INFO, "write", "plain"));
	printf("%d\n", __android_log_print(ANDROID_LOG_WARN, "print", "%d %s %.2f %c %lld %x %s %g %g %g %g %g %g %g %g",
		-1, "two", 3.25, 'c', 1LL << 40, 255, "seventh", 1., 2., 3., 4., 5., 6., 7., 8.5));
	printf("%d\n", vprinted(ANDROID_LOG_ERROR, "vprint", "%s %f", "words", 0.5));
	printf("%d\n", __android_log_buf_write(LOG_ID_SYSTEM, ANDROID_LOG_DEBUG, "buf_write", "system"));
	printf("%d\n", __android_log_buf_print(LOG_ID_CRASH, ANDROID_LOG_FATAL, "buf_print", "%s", "crash"));
	printf("%d\n", __android_log_buf_write(LOG_ID_EVENTS, ANDROID_LOG_INFO, "none", "no text there"));
	ALOGI("macro %d", 1);
	SLOGW("macro %s", "two");
	RLOGE("macro");
	__android_log_write(ANDROID_LOG_VERBOSE, NULL, "by the program's name");
	__android_log_write(ANDROID_LOG_INFO, "null", NULL);
	__android_log_set_default_tag("default");
	__android_log_write(ANDROID_LOG_VERBOSE, NULL, "by default");
}

static void priorities(void)
{
	printf("%d", __android_log_get_minimum_priority());
	printf(" %d", __android_log_set_minimum_priority(ANDROID_LOG_WARN));
	printf(" %d", __android_log_is_loggable(ANDROID_LOG_INFO, "tag", ANDROID_LOG_VERBOSE));
	printf(" %d", __android_log_is_loggable_len(ANDROID_LOG_WARN, "tag", 3, ANDROID_LOG_VERBOSE));
	printf(" %d", __android_log_write(ANDROID_LOG_INFO, "hidden", "x") == -EPERM);
	printf(" %d", __android_log_print(ANDROID_LOG_INFO, "hidden", "%d", 1) == -EPERM);
	printf(" %d\n", __android_log_set_minimum_priority(ANDROID_LOG_DEFAULT));
	__android_log_write(ANDROID_LOG_INFO, "seen", "again");
}

static void mine(const struct __android_logger_data *data, const char *message)
{
	printf("%d %d %s %s\n", data->buffer_id, data->priority, data->tag, message);
	__android_log_logd_logger(data, "by way of mine");
}

static void loggers(void)
{
	struct __android_logger_data data = {
		sizeof(data), LOG_ID_DEFAULT, ANDROID_LOG_INFO, "data", "file.c", 7,
	};

	__android_log_set_logger(mine);
	__android_log_write(ANDROID_LOG_INFO, "logger", "to mine");
	__android_log_set_logger(__android_log_stderr_logger);
	__android_log_write(ANDROID_LOG_INFO, "logger", "to stderr");
	__android_log_write_logger_data(&data, "with a place");
	__android_log_set_logger(__android_log_logd_logger);
	errno = ENOTDIR;
	__android_log_write_logger_data(&data, "by data");
	printf("%d\n", errno == ENOTDIR);
}

static void events(void)
{
	int value = 5;
	long long large = 1LL << 40;
	android_log_context context = create_android_logger(2724);

	printf("%d", __android_log_btwrite(2722, EVENT_TYPE_INT, &value, sizeof(value)));
	printf(" %d", __android_log_bwrite(2723, "\1\0\0\0\0\0\1\0\0", 9));
	printf(" %d", __android_log_bswrite(2725, "words"));
	printf(" %d", android_errorWriteWithInfoLog(0x534e4554, "12345", -1, "info", 4));
	android_log_write_int32(context, 1);
	android_log_write_string8(context, "two");
	printf(" %d\n", android_log_write_list(context, LOG_ID_EVENTS));
	android_log_destroy(&context);
	LOG_EVENT_LONG(2726, large);
}

static void *threads(void *number)
{
	__android_log_print(ANDROID_LOG_INFO, "thread", "%d", *(int *)number);
	return NULL;
}

static void aborter(const char *message)
{
	printf("aborter: %s\n", message);
	__android_log_close();
	fflush(stdout);
	_exit(7);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int number = 3;

	if (argc > 1) {
		printf("%s %d %s\n", android_log_id_to_name(LOG_ID_CRASH), android_name_to_log_id("/dev/log/system"), argv[1]);
		__android_log_set_aborter(aborter);
		LOG_ALWAYS_FATAL_IF(number == 3, "number is %d", number);
	}
	texts();
	priorities();
	loggers();
	events();
	pthread_create(&thread, NULL, threads, &number);
	pthread_join(thread, NULL);
	return __android_log_is_debuggable();
}
