/*
 * Reads what it has written.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <log/log.h>
#include <log/log_read.h>
#include <log/logprint.h>

int android_logger_clear(struct logger *logger);

static int shown(struct logger_list *list)
{
	struct log_msg message;
	AndroidLogEntry entry;
	char words[1024];
	int result = android_logger_list_read(list, &message);

	if (result < 0) {
		printf("%s\n", result == -EAGAIN ? "no more" : strerror(-result));
		return 0;
	}
	if (message.entry.lid == LOG_ID_EVENTS)
		android_log_processBinaryLogBuffer(&message.entry, &entry, NULL, words, sizeof(words));
	else
		android_log_processLogBuffer(&message.entry, &entry);
	printf("%u %d %s: %.*s%s\n", message.entry.lid, entry.priority, entry.tag, (int)entry.messageLen, entry.message,
		entry.pid == getpid() && entry.uid == (int)getuid() ? "" : " of others");
	return 1;
}

static void *later(void *unused)
{
	__android_log_write(ANDROID_LOG_WARN, "later", "awaited");
	return unused;
}

int main(void)
{
	struct logger_list *list = android_logger_list_alloc(ANDROID_LOG_RDONLY | ANDROID_LOG_NONBLOCK, 0, 0);
	struct logger *logger;
	log_time start = { 4000000000u, 0 };
	pthread_t thread;

	__android_log_write(ANDROID_LOG_INFO, "one", "first");
	__android_log_buf_write(LOG_ID_SYSTEM, ANDROID_LOG_INFO, "two", "second");
	__android_log_bswrite(42, "third");
	__android_log_write(ANDROID_LOG_ERROR, "four", "fourth");
	logger = android_logger_open(list, LOG_ID_MAIN);
	android_logger_open(list, LOG_ID_EVENTS);
	printf("%d %d\n", android_logger_get_id(logger), logger == android_logger_open(list, LOG_ID_MAIN));
	while (shown(list))
		;
	android_logger_list_free(list);

	list = android_logger_list_open(LOG_ID_MAIN, ANDROID_LOG_RDONLY, 1, getpid());
	shown(list);
	pthread_create(&thread, NULL, later, NULL);
	shown(list);
	pthread_join(thread, NULL);
	android_logger_list_free(list);

	list = android_logger_list_alloc_time(ANDROID_LOG_NONBLOCK, start, 0);
	logger = android_logger_open(list, LOG_ID_MAIN);
	shown(list);
	printf("%d\n", android_logger_clear(logger));
	android_logger_list_free(list);
	list = android_logger_list_open(LOG_ID_MAIN, ANDROID_LOG_NONBLOCK, 0, 0);
	shown(list);
	android_logger_list_free(list);
	list = android_logger_list_open(LOG_ID_MAIN, ANDROID_LOG_NONBLOCK, 0, 1);
	shown(list);
	android_logger_list_free(list);
	return 0;
}
