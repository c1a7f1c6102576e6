/*
 * Calls of Java methods with arguments by "..." and by va_list. Stable Rust defines no function that takes
 * either, so these read the arguments and call the function of the table that takes an array.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef union {
	uint8_t z;
	int8_t b;
	uint16_t c;
	int16_t s;
	int32_t i;
	int64_t j;
	float f;
	double d;
	void *l;
} value;
typedef void *reference;
/* A JNIEnv: its first word points to the table. */
typedef const void *const *environment;

/* As many parameters as a method may have. */
#define MOST 255

/* The kinds of a method's parameters: of Rust's `Kind`, a letter each. */
size_t baton_jni_parameters(const void *id, char kinds[MOST]);

static void read(const void *id, value values[MOST], va_list list)
{
	char kinds[MOST];
	size_t count = baton_jni_parameters(id, kinds);

	for (size_t i = 0; i < count; i++) {
		switch (kinds[i]) {
		/* C widens small integers to int, and float to double. */
		case 'Z': values[i].z = (uint8_t)va_arg(list, int); break;
		case 'B': values[i].b = (int8_t)va_arg(list, int); break;
		case 'C': values[i].c = (uint16_t)va_arg(list, int); break;
		case 'S': values[i].s = (int16_t)va_arg(list, int); break;
		case 'I': values[i].i = va_arg(list, int32_t); break;
		case 'J': values[i].j = va_arg(list, int64_t); break;
		case 'F': values[i].f = (float)va_arg(list, double); break;
		case 'D': values[i].d = va_arg(list, double); break;
		default: values[i].l = va_arg(list, void *);
		}
	}
}

/* The function of the table that takes an array, by the index of the variadic one. */
#define TAKES_ARRAY(env, index, type) ((type)(*(const void *const *const *)(env))[(index) + 2])

#define VIRTUAL(name, type, index)                                                                        \
	static type name##V(environment env, reference object, const void *id, va_list list)              \
	{                                                                                                 \
		value values[MOST];                                                                       \
		read(id, values, list);                                                                   \
		return TAKES_ARRAY(env, index,                                                            \
				   type (*)(environment, reference, const void *, const value *))(        \
			env, object, id, values);                                                         \
	}                                                                                                 \
	static type name(environment env, reference object, const void *id, ...)                          \
	{                                                                                                 \
		value values[MOST];                                                                       \
		va_list list;                                                                             \
		va_start(list, id);                                                                       \
		read(id, values, list);                                                                   \
		va_end(list);                                                                             \
		return TAKES_ARRAY(env, index,                                                            \
				   type (*)(environment, reference, const void *, const value *))(        \
			env, object, id, values);                                                         \
	}

#define NONVIRTUAL(name, type, index)                                                                     \
	static type name##V(environment env, reference object, reference class, const void *id,           \
			    va_list list)                                                                 \
	{                                                                                                 \
		value values[MOST];                                                                       \
		read(id, values, list);                                                                   \
		return TAKES_ARRAY(                                                                       \
			env, index,                                                                       \
			type (*)(environment, reference, reference, const void *, const value *))(        \
			env, object, class, id, values);                                                  \
	}                                                                                                 \
	static type name(environment env, reference object, reference class, const void *id, ...)         \
	{                                                                                                 \
		value values[MOST];                                                                       \
		va_list list;                                                                             \
		va_start(list, id);                                                                       \
		read(id, values, list);                                                                   \
		va_end(list);                                                                             \
		return TAKES_ARRAY(                                                                       \
			env, index,                                                                       \
			type (*)(environment, reference, reference, const void *, const value *))(        \
			env, object, class, id, values);                                                  \
	}

/* A function that returns nothing may return another one's nothing only by an extension. */
#pragma GCC diagnostic ignored "-Wpedantic"

VIRTUAL(NewObject, reference, 28)

/* A group for each way to call: the ten types in the order of jni.h, three functions each. */
#define GROUP(define, prefix, first)                                                                      \
	define(prefix##Object, reference, (first))                                                        \
	define(prefix##Boolean, uint8_t, (first) + 3)                                                     \
	define(prefix##Byte, int8_t, (first) + 6)                                                         \
	define(prefix##Char, uint16_t, (first) + 9)                                                       \
	define(prefix##Short, int16_t, (first) + 12)                                                      \
	define(prefix##Int, int32_t, (first) + 15)                                                        \
	define(prefix##Long, int64_t, (first) + 18)                                                       \
	define(prefix##Float, float, (first) + 21)                                                        \
	define(prefix##Double, double, (first) + 24)                                                      \
	define(prefix##Void, void, (first) + 27)

GROUP(VIRTUAL, Call, 34)
GROUP(NONVIRTUAL, CallNonvirtual, 64)
GROUP(VIRTUAL, CallStatic, 114)

#define BOTH(name) (const void *)name, (const void *)name##V
#define ALL(prefix)                                                                                       \
	BOTH(prefix##Object), BOTH(prefix##Boolean), BOTH(prefix##Byte), BOTH(prefix##Char),              \
		BOTH(prefix##Short), BOTH(prefix##Int), BOTH(prefix##Long), BOTH(prefix##Float),          \
		BOTH(prefix##Double), BOTH(prefix##Void)

/* In the order of the table, each with its form for va_list. */
const void *const baton_jni_variadic[62] = {
	BOTH(NewObject), ALL(Call), ALL(CallNonvirtual), ALL(CallStatic),
};
