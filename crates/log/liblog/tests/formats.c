/*
 * Entries taken apart, filtered and shown. What this prints must be the same with Android's liblog and with ours.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <log/log.h>
#include <log/log_read.h>
#include <log/logprint.h>

static union {
	struct logger_entry entry;
	char bytes[6000];
} of;

static struct logger_entry *made(int buffer, const void *payload, size_t n_bytes)
{
	memset(&of, 0x55, sizeof(of));
	of.entry = (struct logger_entry){
		.len = n_bytes, .hdr_size = sizeof(of.entry), .pid = 123, .tid = 124,
		.sec = 1385436097, .nsec = 123456789, .lid = buffer, .uid = 1000,
	};
	memcpy(of.bytes + sizeof(of.entry), payload, n_bytes);
	return &of.entry;
}

static void show(const char *what, int result, const AndroidLogEntry *entry)
{
	printf("%s: %d", what, result);
	if (result == 0)
		printf(" %d %d %d %d %ld.%ld '%s' %zu '%.*s' %zu", entry->priority, entry->uid, entry->pid, entry->tid,
			(long)entry->tv_sec, entry->tv_nsec, entry->tag, entry->tagLen, (int)entry->messageLen, entry->message,
			entry->messageLen);
	printf("\n");
}

static void texts(void)
{
	static const struct { const char *bytes; size_t n_bytes; } payloads[] = {
		{ "\4Tag\0message", 13 }, { "\4Tag\0message\0", 13 }, { "\4Tag\0no end", 11 }, { "\4Tag no end", 11 },
		{ "\4Tag:colon", 10 }, { "\4\0\0", 3 }, { "\4\0", 2 }, { "\4", 1 }, { "", 0 }, { "\4Tag\0a\0b\0", 9 },
		{ "\6Tag\0", 5 }, { "\4nothing", 8 },
	};
	AndroidLogEntry entry;

	for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++)
		show("text", android_log_processLogBuffer(made(0, payloads[i].bytes, payloads[i].n_bytes), &entry), &entry);
	made(0, "\4Tag\0message", 13)->hdr_size = 8;
	show("short header", android_log_processLogBuffer(&of.entry, &entry), &entry);
}

static void events(void)
{
	static const struct { const char *bytes; size_t n_bytes; } payloads[] = {
		{ "\1\0\0\0\0\5\0\0\0", 9 }, { "\377\377\377\377\2\5\0\0\0words", 14 }, { "\1\0\0\0", 4 }, { "\1\0", 2 },
		{ "\1\0\0\0\3\2\0\1\0\0\0\0\2\0\0\0", 16 }, { "\1\0\0\0\0\5\0\0\0\n", 10 },
	};
	AndroidLogEntry entry;
	char words[64];

	for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++)
		show("event", android_log_processBinaryLogBuffer(made(2, payloads[i].bytes, payloads[i].n_bytes), &entry,
			NULL, words, sizeof(words)), &entry);
}

static void formats(void)
{
	static const char *names[] = {
		"brief", "process", "tag", "thread", "raw", "time", "threadtime", "long", "colour", "usec", "nsec", "year", "zone",
		"epoch", "uid", "descriptive", "monotonic", "UTC", "printable",
	};
	AndroidLogEntry entry;
	AndroidLogFormat *format = android_log_format_new();
	char small[8], large[4096];
	size_t n_bytes;

	android_log_processLogBuffer(made(0, "\5Tag\0one\ntwo", 13), &entry);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		AndroidLogPrintFormat number = android_log_formatFromString(names[i]);
		int result = android_log_setPrintFormat(format, number);
		AndroidLogFormat *alone = android_log_format_new();
		char *line;

		printf("%s %d %d\n", names[i], number, result);
		/* Colours and escapes have changed since, and a host's liblog has no monotonic time. */
		if (strcmp(names[i], "colour") && strcmp(names[i], "monotonic") && strcmp(names[i], "printable")) {
			android_log_setPrintFormat(alone, FORMAT_LONG);
			android_log_setPrintFormat(alone, number);
			line = android_log_formatLogLine(alone, large, sizeof(large), &entry, &n_bytes);
			printf("%d %zu %.*s\n", line == large, n_bytes, (int)n_bytes, line);
			line = android_log_formatLogLine(alone, small, sizeof(small), &entry, &n_bytes);
			printf("%d %zu %.*s\n", line == small, n_bytes, (int)n_bytes, line);
			if (line != small)
				free(line);
		}
		android_log_format_free(alone);
	}
	android_log_format_free(format);
	format = android_log_format_new();
	fflush(stdout);
	printf("%d\n", android_log_printLogLine(format, STDOUT_FILENO, &entry));
	android_log_format_free(format);
}

static void filters(void)
{
	static const char *rules[] = { "Tag:I", "*:S", "A:x", ":I", "", "B:w C,D:E", "E", "*" };
	AndroidLogFormat *format = android_log_format_new();

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		printf("%s:", rules[i]);
		printf(" %d", android_log_addFilterString(format, rules[i]));
		for (const char *tag = "Tag\0A\0B\0C\0D\0E\0"; *tag; tag += strlen(tag) + 1)
			for (int priority = ANDROID_LOG_VERBOSE; priority <= ANDROID_LOG_SILENT; priority++)
				printf(" %d", android_log_shouldPrintLine(format, tag, priority));
		printf("\n");
	}
	printf("%d %d %d\n", android_log_addFilterRule(format, "F:I"), android_log_addFilterRule(format, ""),
		android_log_addFilterRule(format, "G:x"));
	android_log_format_free(format);
}

static void tags(const char *path)
{
	static const unsigned numbers[] = { 42, 314, 2718, 1 };
	EventTagMap *map = android_openEventTagMap(path);
	size_t n_bytes;

	printf("%d\n", map != NULL);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const char *name = android_lookupEventTag_len(map, &n_bytes, numbers[i]);

		printf("%u: %.*s", numbers[i], (int)n_bytes, name ? name : "");
		name = android_lookupEventFormat_len(map, &n_bytes, numbers[i]);
		printf(" %.*s\n", (int)n_bytes, name ? name : "");
	}
	printf("%s %d\n", android_lookupEventTag(map, 42), android_lookupEventTagNum(map, "pi", NULL, ANDROID_LOG_UNKNOWN));
	android_closeEventTagMap(map);
	printf("%d\n", android_openEventTagMap("/nonexistent") == NULL);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	texts();
	events();
	formats();
	filters();
	if (argc > 1)
		tags(argv[1]);
	return 0;
}
