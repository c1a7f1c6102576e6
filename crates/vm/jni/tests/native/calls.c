#include <jni.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Calls_##name

static void show(JNIEnv *env, const char *format, ...)
{
	char text[256];
	va_list values;
	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);

	/* To Java's stream, so that the lines are in order. */
	jclass own = (*env)->FindClass(env, "Calls");
	jmethodID show = (*env)->GetStaticMethodID(env, own, "show", "([Ljava/lang/Object;)V");
	jclass object = (*env)->FindClass(env, "java/lang/Object");
	jstring string = (*env)->NewStringUTF(env, text);
	(*env)->CallStaticVoidMethod(env, own, show, (*env)->NewObjectArray(env, 1, object, string));
}

#define V_FORM(type, call)                                                               \
	static type call##_v(JNIEnv *env, jobject object, jmethodID id, ...)              \
	{                                                                                 \
		va_list values;                                                           \
		va_start(values, id);                                                     \
		type result = (*env)->call##MethodV(env, object, id, values);             \
		va_end(values);                                                           \
		return result;                                                            \
	}
V_FORM(jboolean, CallBoolean)
V_FORM(jboolean, CallStaticBoolean)
V_FORM(jfloat, CallFloat)
V_FORM(jdouble, CallStaticDouble)
V_FORM(jobject, CallObject)

#define ALL 1, (jbyte)-2, (jchar)0x20ac, (jshort)-4, -5, (jlong)-6 << 40, 7.5f, -8.25, text

FUNCTION(void, all)(JNIEnv *env, jclass c, jobject o, jstring text)
{
	const char *of_all = "(ZBCSIJFDLjava/lang/String;)Z";
	jvalue values[9];
	values[0].z = 1;
	values[1].b = -2;
	values[2].c = 0x20ac;
	values[3].s = -4;
	values[4].i = -5;
	values[5].j = (jlong)-6 << 40;
	values[6].f = 7.5f;
	values[7].d = -8.25;
	values[8].l = text;

	jmethodID z = (*env)->GetMethodID(env, c, "z", of_all);
	show(env, "%d %d %d", (*env)->CallBooleanMethod(env, o, z, ALL), CallBoolean_v(env, o, z, ALL),
	     (*env)->CallBooleanMethodA(env, o, z, values));
	show(env, "%d %d", (*env)->CallNonvirtualBooleanMethod(env, o, c, z, ALL),
	     (*env)->CallNonvirtualBooleanMethodA(env, o, c, z, values));
	jmethodID sz = (*env)->GetStaticMethodID(env, c, "sz", of_all);
	show(env, "%d %d %d", (*env)->CallStaticBooleanMethod(env, c, sz, ALL), CallStaticBoolean_v(env, c, sz, ALL),
	     (*env)->CallStaticBooleanMethodA(env, c, sz, values));

#define EACH(letter, name, argument, format, index)                                                       \
	{                                                                                                 \
		jmethodID id = (*env)->GetMethodID(env, c, #letter, "(" #name ")" #name);                  \
		jmethodID of_class = (*env)->GetStaticMethodID(env, c, "s" #letter, "(" #name ")" #name);  \
		show(env, format " " format " " format " " format " " format " " format,                   \
		     (*env)->TYPE(Call, letter)(env, o, id, argument),                                    \
		     (*env)->TYPE_A(Call, letter)(env, o, id, values + index),                            \
		     (*env)->TYPE(CallNonvirtual, letter)(env, o, c, id, argument),                       \
		     (*env)->TYPE_A(CallNonvirtual, letter)(env, o, c, id, values + index),               \
		     (*env)->TYPE(CallStatic, letter)(env, c, of_class, argument),                        \
		     (*env)->TYPE_A(CallStatic, letter)(env, c, of_class, values + index));               \
	}
#define NAME_b Byte
#define NAME_c Char
#define NAME_s Short
#define NAME_i Int
#define NAME_j Long
#define NAME_f Float
#define NAME_d Double
#define JOIN(prefix, name, suffix) prefix##name##suffix
#define JOINED(prefix, name, suffix) JOIN(prefix, name, suffix)
#define TYPE(prefix, letter) JOINED(prefix, NAME_##letter, Method)
#define TYPE_A(prefix, letter) JOINED(prefix, NAME_##letter, MethodA)
	EACH(b, B, (jbyte)-2, "%d", 1)
	EACH(c, C, (jchar)0x20ac, "%d", 2)
	EACH(s, S, (jshort)-4, "%d", 3)
	EACH(i, I, -5, "%d", 4)
	EACH(j, J, (jlong)-6 << 40, "%ld", 5)
	EACH(f, F, 7.5f, "%g", 6)
	EACH(d, D, -8.25, "%g", 7)

	jmethodID f = (*env)->GetMethodID(env, c, "f", "(F)F");
	jmethodID sd = (*env)->GetStaticMethodID(env, c, "sd", "(D)D");
	show(env, "%g %g", CallFloat_v(env, o, f, 1.5), CallStaticDouble_v(env, c, sd, 2.5));

	const char *of_text = "(Ljava/lang/String;)Ljava/lang/String;";
	jmethodID l = (*env)->GetMethodID(env, c, "l", of_text);
	jmethodID sl = (*env)->GetStaticMethodID(env, c, "sl", of_text);
	jobject texts[] = {
		(*env)->CallObjectMethod(env, o, l, text),
		(*env)->CallObjectMethodA(env, o, l, values + 8),
		CallObject_v(env, o, l, text),
		(*env)->CallNonvirtualObjectMethod(env, o, c, l, text),
		(*env)->CallNonvirtualObjectMethodA(env, o, c, l, values + 8),
		(*env)->CallStaticObjectMethod(env, c, sl, text),
		(*env)->CallStaticObjectMethodA(env, c, sl, values + 8),
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		const char *chars = (*env)->GetStringUTFChars(env, texts[i], NULL);
		show(env, "%s", chars);
		(*env)->ReleaseStringUTFChars(env, texts[i], chars);
	}

	jmethodID v = (*env)->GetMethodID(env, c, "v", "(Z)V");
	(*env)->CallVoidMethod(env, o, v, 1);
	(*env)->CallVoidMethodA(env, o, v, values);
	(*env)->CallNonvirtualVoidMethod(env, o, c, v, 0);
	(*env)->CallNonvirtualVoidMethodA(env, o, c, v, values);
	jmethodID sv = (*env)->GetStaticMethodID(env, c, "sv", "(Z)V");
	(*env)->CallStaticVoidMethod(env, c, sv, 0);
	(*env)->CallStaticVoidMethodA(env, c, sv, values);
}

FUNCTION(void, fields)(JNIEnv *env, jclass c, jobject o, jstring text)
{
	jclass of = (*env)->GetObjectClass(env, o);
#define FIELD(letter, name, type, format, value)                                                          \
	{                                                                                                 \
		jfieldID id = (*env)->GetFieldID(env, of, #letter, name);                                  \
		show(env, format, (*env)->Get##type##Field(env, o, id));                                   \
		(*env)->Set##type##Field(env, o, id, value);                                               \
		jfieldID of_class = (*env)->GetStaticFieldID(env, of, "s" #letter, name);                  \
		show(env, format, (*env)->GetStatic##type##Field(env, of, of_class));                      \
		(*env)->SetStatic##type##Field(env, of, of_class, value);                                  \
	}
	FIELD(z, "Z", Boolean, "%d", 0)
	FIELD(b, "B", Byte, "%d", 127)
	FIELD(c, "C", Char, "%d", 0xffff)
	FIELD(s, "S", Short, "%d", -32768)
	FIELD(i, "I", Int, "%d", 1 << 30)
	FIELD(j, "J", Long, "%ld", (jlong)1 << 62)
	FIELD(f, "F", Float, "%g", -0.5f)
	FIELD(d, "D", Double, "%g", 1e300)
	jfieldID l = (*env)->GetFieldID(env, of, "l", "Ljava/lang/String;");
	jfieldID sl = (*env)->GetStaticFieldID(env, of, "sl", "Ljava/lang/String;");
	show(env, "%d", (*env)->GetStringLength(env, (*env)->GetObjectField(env, o, l)));
	show(env, "%d", (*env)->GetStringLength(env, (*env)->GetStaticObjectField(env, of, sl)));
	(*env)->SetObjectField(env, o, l, text);
	(*env)->SetStaticObjectField(env, of, sl, NULL);
}

FUNCTION(jstring, virtualName)(JNIEnv *env, jclass c, jobject o)
{
	jclass base = (*env)->FindClass(env, "Calls$Base");
	return (*env)->CallObjectMethod(env, o, (*env)->GetMethodID(env, base, "name", "()Ljava/lang/String;"));
}
FUNCTION(jstring, baseName)(JNIEnv *env, jclass c, jobject o)
{
	jclass base = (*env)->GetSuperclass(env, (*env)->GetObjectClass(env, o));
	jmethodID name = (*env)->GetMethodID(env, base, "name", "()Ljava/lang/String;");
	return (*env)->CallNonvirtualObjectMethod(env, o, base, name);
}
FUNCTION(jstring, describe)(JNIEnv *env, jclass c, jobject shape)
{
	jclass of = (*env)->FindClass(env, "Calls$Shape");
	jmethodID describe = (*env)->GetMethodID(env, of, "describe", "(Ljava/lang/String;)Ljava/lang/String;");
	/* Interfaces have Object's methods. */
	if (!(*env)->GetMethodID(env, of, "hashCode", "()I"))
		return NULL;
	return (*env)->CallObjectMethod(env, shape, describe, (*env)->NewStringUTF(env, " m2"));
}
FUNCTION(jobject, make)(JNIEnv *env, jclass c, jclass of, jdouble side)
{
	return (*env)->NewObject(env, of, (*env)->GetMethodID(env, of, "<init>", "(D)V"), side);
}
static jobject make_v(JNIEnv *env, jclass of, jmethodID id, ...)
{
	va_list values;
	va_start(values, id);
	jobject object = (*env)->NewObjectV(env, of, id, values);
	va_end(values);
	return object;
}
FUNCTION(jobject, makeOfAll)(JNIEnv *env, jclass c, jclass of, jstring text)
{
	jmethodID id = (*env)->GetMethodID(env, of, "<init>", "(ZBCSIJFDLjava/lang/String;)V");
	return make_v(env, of, id, ALL);
}
FUNCTION(jobject, allocate)(JNIEnv *env, jclass c, jclass of) { return (*env)->AllocObject(env, of); }
FUNCTION(jint, late)(JNIEnv *env, jclass c)
{
	jclass late = (*env)->FindClass(env, "Calls$Late");
	return (*env)->CallStaticIntMethod(env, late, (*env)->GetStaticMethodID(env, late, "answer", "()I"));
}
FUNCTION(jint, depth)(JNIEnv *env, jclass c, jint n)
{
	return (*env)->CallStaticIntMethod(env, c, (*env)->GetStaticMethodID(env, c, "deeper", "(I)I"), n);
}
