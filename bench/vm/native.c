/* The C part of Native.java. */
#include <jni.h>

JNIEXPORT void JNICALL Java_Native_empty(JNIEnv *env, jclass own)
{
}

static jint sum(const jint *ints, jsize length)
{
	jint sum = 0;
	for (jsize i = 0; i < length; i++)
		sum += ints[i];
	return sum;
}

JNIEXPORT jint JNICALL Java_Native_copied(JNIEnv *env, jclass own, jintArray array)
{
	jint *ints = (*env)->GetIntArrayElements(env, array, NULL);
	jint result = sum(ints, (*env)->GetArrayLength(env, array));
	(*env)->ReleaseIntArrayElements(env, array, ints, JNI_ABORT);
	return result;
}

JNIEXPORT jint JNICALL Java_Native_inPlace(JNIEnv *env, jclass own, jintArray array)
{
	jsize length = (*env)->GetArrayLength(env, array);
	jint *ints = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
	jint result = sum(ints, length);
	(*env)->ReleasePrimitiveArrayCritical(env, array, ints, JNI_ABORT);
	return result;
}
