#include <jni.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Text_##name

FUNCTION(jstring, utf)(JNIEnv *env, jclass c, jstring text)
{
	jboolean is_copy = 7;
	const char *chars = (*env)->GetStringUTFChars(env, text, &is_copy);
	jstring same = is_copy == JNI_TRUE ? (*env)->NewStringUTF(env, chars) : NULL;
	(*env)->ReleaseStringUTFChars(env, text, chars);
	return same;
}
FUNCTION(jstring, utf16)(JNIEnv *env, jclass c, jstring text)
{
	const jchar *chars = (*env)->GetStringChars(env, text, NULL);
	jstring same = (*env)->NewString(env, chars, (*env)->GetStringLength(env, text));
	(*env)->ReleaseStringChars(env, text, chars);
	return same;
}
FUNCTION(jstring, critical)(JNIEnv *env, jclass c, jstring text)
{
	jsize length = (*env)->GetStringLength(env, text);
	jchar *copy = malloc(2 * length + 1);
	const jchar *chars = (*env)->GetStringCritical(env, text, NULL);
	memcpy(copy, chars, 2 * length);
	(*env)->ReleaseStringCritical(env, text, chars);
	jstring same = (*env)->NewString(env, copy, length);
	free(copy);
	return same;
}
FUNCTION(jintArray, lengths)(JNIEnv *env, jclass c, jstring text)
{
	jint lengths[] = {(*env)->GetStringLength(env, text), (*env)->GetStringUTFLength(env, text)};
	jintArray array = (*env)->NewIntArray(env, 2);
	(*env)->SetIntArrayRegion(env, array, 0, 2, lengths);
	return array;
}
FUNCTION(jstring, region)(JNIEnv *env, jclass c, jstring text, jint start, jint count)
{
	jchar units[64];
	(*env)->GetStringRegion(env, text, start, count, units);
	return (*env)->ExceptionCheck(env) ? NULL : (*env)->NewString(env, units, count);
}
FUNCTION(jstring, utfRegion)(JNIEnv *env, jclass c, jstring text, jint start, jint count)
{
	char bytes[64] = "";
	(*env)->GetStringUTFRegion(env, text, start, count, bytes);
	return (*env)->ExceptionCheck(env) ? NULL : (*env)->NewStringUTF(env, bytes);
}
FUNCTION(jstring, make)(JNIEnv *env, jclass c, jint what)
{
	switch (what) {
	case 0: return (*env)->NewStringUTF(env, NULL);
	case 1: return (*env)->NewString(env, NULL, 0);
	default: return (*env)->NewStringUTF(env, "\xed\xa0\xbd\xed\xb8\x80\xc0\x80");
	}
}
