#include <jni.h>
#include <stdio.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Types_##name

FUNCTION(jboolean, not)(JNIEnv *env, jclass c, jboolean value) { return !value; }
FUNCTION(jbyte, negateByte)(JNIEnv *env, jclass c, jbyte value) { return -value; }
FUNCTION(jchar, nextChar)(JNIEnv *env, jclass c, jchar value) { return value + 1; }
FUNCTION(jshort, negateShort)(JNIEnv *env, jclass c, jshort value) { return -value; }
FUNCTION(jint, negateInt)(JNIEnv *env, jclass c, jint value) { return 0u - value; }
FUNCTION(jlong, negateLong)(JNIEnv *env, jclass c, jlong value) { return 0ul - value; }
FUNCTION(jfloat, halfFloat)(JNIEnv *env, jclass c, jfloat value) { return value / 2; }
FUNCTION(jdouble, halfDouble)(JNIEnv *env, jclass c, jdouble value) { return value / 2; }
FUNCTION(jobject, same)(JNIEnv *env, jclass c, jobject value) { return value; }
FUNCTION(void, nothing)(JNIEnv *env, jclass c) {}
FUNCTION(jboolean, isClass)(JNIEnv *env, jclass c, jclass other)
{
	return (*env)->IsSameObject(env, c, other);
}

FUNCTION(jstring, many)(JNIEnv *env, jclass c, jboolean z, jbyte b, jchar ch, jshort s, jint i, jlong j, jfloat f,
			jdouble d, jstring l, jlong j2, jfloat f2, jint i2, jdouble d2, jbyte b2, jdouble d3,
			jfloat f3, jdouble d4, jfloat f4, jfloat f5, jdouble d5, jchar c2, jstring l2)
{
	char text[512];
	const char *first = (*env)->GetStringUTFChars(env, l, NULL);
	const char *last = (*env)->GetStringUTFChars(env, l2, NULL);

	snprintf(text, sizeof(text), "%d %d %d %d %d %lld %g %g %s %lld %g %d %g %d %g %g %g %g %g %g %d %s", z, b, ch,
		 s, i, (long long)j, f, d, first, (long long)j2, f2, i2, d2, b2, d3, f3, d4, f4, f5, d5, c2, last);
	(*env)->ReleaseStringUTFChars(env, l, first);
	(*env)->ReleaseStringUTFChars(env, l2, last);
	return (*env)->NewStringUTF(env, text);
}

FUNCTION(jint, instance)(JNIEnv *env, jobject this, jint value)
{
	jclass own = (*env)->GetObjectClass(env, this);
	return value + (*env)->GetIntField(env, this, (*env)->GetFieldID(env, own, "base", "I"));
}
FUNCTION(jint, locked)(JNIEnv *env, jobject this, jint value)
{
	/* Entered once more, and left once: the method's own entry stays. */
	return value + 10 * (*env)->MonitorEnter(env, this) + 100 * (*env)->MonitorExit(env, this);
}

FUNCTION(jstring, named__I)(JNIEnv *env, jclass c, jint value) { return (*env)->NewStringUTF(env, "int"); }
FUNCTION(jstring, named___3JLjava_lang_String_2)(JNIEnv *env, jclass c, jlongArray value, jstring text)
{
	return (*env)->GetArrayLength(env, value) == 3 ? text : NULL;
}
FUNCTION(jstring, under_1score)(JNIEnv *env, jclass c, jint value) { return (*env)->NewStringUTF(env, "under"); }
FUNCTION(jstring, gr_000fcn_00024)(JNIEnv *env, jclass c, jint value) { return (*env)->NewStringUTF(env, "green"); }
JNIEXPORT jstring JNICALL Java_Types_00024Inner_where(JNIEnv *env, jclass c)
{
	return (*env)->NewStringUTF(env, "inner");
}

/* As other compilers may leave the upper bits of a register. */
FUNCTION(jlong, wideBoolean)(JNIEnv *env, jclass c) { return 0x1234567800000001; }
FUNCTION(jlong, wideByte)(JNIEnv *env, jclass c) { return 0x12345678000000ff; }
FUNCTION(jlong, wideChar)(JNIEnv *env, jclass c) { return 0x123456781234ffff; }
FUNCTION(jlong, wideShort)(JNIEnv *env, jclass c) { return 0x123456781234ffff; }

FUNCTION(jint, sum)(JNIEnv *env, jclass c, jintArray numbers)
{
	jint sum = 0, count = (*env)->GetArrayLength(env, numbers);
	jint *elements = (*env)->GetPrimitiveArrayCritical(env, numbers, NULL);
	for (jint i = 0; i < count; i++)
		sum += elements[i];
	(*env)->ReleasePrimitiveArrayCritical(env, numbers, elements, JNI_ABORT);
	return sum;
}
