/*
 * Events of several values, made and read back in odd ways. What this prints must be the same with Android's
 * liblog and with ours.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <log/log_event_list.h>

/* Exported by both, declared by neither's headers. */
int android_log_write_list_buffer(android_log_context context, const char **buffer);

static void show(const char *what, android_log_context context)
{
	const char *payload = NULL;
	int n_bytes = android_log_write_list_buffer(context, &payload);

	printf("%s: %d:", what, n_bytes);
	for (int i = 0; i < n_bytes && i < 64; i++)
		printf(" %02x", (unsigned char)payload[i]);
	printf("\n");
}

static void element(const char *how, android_log_list_element element)
{
	printf("  %s %d complete %d bytes %d", how, element.type, !!element.complete, element.len);
	switch (element.type) {
	case EVENT_TYPE_INT: printf(" %d", element.data.int32); break;
	case EVENT_TYPE_LONG: printf(" %lld", (long long)element.data.int64); break;
	case EVENT_TYPE_FLOAT: printf(" %f", element.data.float32); break;
	case EVENT_TYPE_STRING: printf(" %.*s", element.len, element.data.string); break;
	default: break;
	}
	printf("\n");
}

static void parse(const char *what, const void *payload, size_t n_bytes, int n_elements)
{
	android_log_context context = create_android_log_parser(payload, n_bytes);

	printf("%s\n", what);
	for (int i = 0; i < n_elements; i++) {
		element("peek", android_log_peek_next(context));
		element("read", android_log_read_next(context));
	}
	printf("  %d %d\n", android_log_reset(context), android_log_parser_reset(context, "\0\1\0\0\0", 5));
	element("again", android_log_read_next(context));
	printf("  %d %d\n", android_log_destroy(&context), context == NULL);
}

/* What can be written is read back. */
static void there_and_back(android_log_context context, const char *what, int n_elements)
{
	const char *payload;
	int n_bytes = android_log_write_list_buffer(context, &payload);

	show(what, context);
	parse(what, payload, n_bytes, n_elements);
	android_log_destroy(&context);
}

static void values(void)
{
	android_log_context context = create_android_logger(42);

	show("none", context);
	printf("%d\n", android_log_write_int32(context, -5));
	show("one", context);
	printf("%d", android_log_write_int64(context, 1LL << 40));
	printf(" %d", android_log_write_string8(context, "words"));
	printf(" %d", android_log_write_string8(context, NULL));
	printf(" %d", android_log_write_string8_len(context, "not all of this", 3));
	printf(" %d\n", android_log_write_float32(context, 2.5));
	printf("parser's: %d\n", android_log_parser_reset(context, "", 0));
	there_and_back(context, "several", 9);
}

static void lists(void)
{
	android_log_context context = create_android_logger(42);

	printf("%d", android_log_write_list_begin(context));
	printf(" %d", android_log_write_int32(context, 1));
	printf(" %d", android_log_write_list_begin(context));
	printf(" %d", android_log_write_list_end(context));
	show(" open", context);
	printf("%d", android_log_write_list_end(context));
	printf(" %d\n", android_log_write_string8(context, "after"));
	there_and_back(context, "nested", 11);
}

static void too_much(void)
{
	android_log_context context = create_android_logger(42);
	char *words = malloc(5000);
	int begun = 0;

	memset(words, 'x', 4999);
	words[4999] = 0;
	printf("%d", android_log_write_string8(context, words));
	printf(" %d", android_log_write_int32(context, 1));
	printf(" %d\n", android_log_write_list_begin(context));
	printf("%d\n", android_log_reset(context));
	printf("%d %d\n", android_log_write_list_end(context), android_log_write_int32(context, 1));
	android_log_reset(context);
	while (android_log_write_list_begin(context) == 0)
		begun++;
	printf("%d\n", begun);
	android_log_destroy(&context);
	printf("%d\n", android_log_destroy(&context));
	printf("%d %d\n", android_log_write_int32(NULL, 1), android_log_write_list(NULL, LOG_ID_EVENTS));
	context = create_android_logger(42);
	printf("%d\n", android_log_write_list(context, LOG_ID_MAIN));
	element("a writer's", android_log_read_next(context));
	element("nobody's", android_log_read_next(NULL));
	android_log_destroy(&context);
	free(words);
}

int main(void)
{
	/* A string of 65536 bytes, of which there are none, and one that is cut. */
	static const char huge[] = "\2\0\0\1\0", cut[] = "\2\5\0\0\0ab";

	values();
	lists();
	too_much();
	parse("empty", "", 0, 3);
	parse("int", "\0\5\0\0\0", 5, 4);
	parse("half an int", "\0\5\0", 3, 2);
	parse("half a long", "\1\5\0", 3, 2);
	parse("half a string's head", "\2\5\0", 3, 2);
	parse("cut string", cut, 7, 4);
	parse("no string", cut, 5, 2);
	parse("huge string", huge, 5, 2);
	parse("half a list", "\3", 1, 2);
	parse("empty list", "\3\0", 2, 4);
	parse("list that ends early", "\3\3\0\1\0\0\0", 7, 5);
	parse("newline", "\n", 1, 3);
	parse("list and newline", "\3\1\0\1\0\0\0\n", 8, 6);
	parse("newline in a list", "\3\2\n", 3, 4);
	parse("unknown", "\7\1\2", 3, 2);
	parse("deep", "\3\1\3\1\3\1\3\1\3\1\3\1\3\1\3\1\3\1\3\1\3\1", 22, 14);
	parse("two values", "\0\1\0\0\0\0\2\0\0\0", 10, 6);
	return 0;
}
