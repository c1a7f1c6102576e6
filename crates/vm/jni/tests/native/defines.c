#include <jni.h>

JNIEXPORT jclass JNICALL Java_Defines_define(JNIEnv *env, jclass c, jstring name,
		jobject loader, jbyteArray array)
{
	const char *chars = name ? (*env)->GetStringUTFChars(env, name, NULL) : NULL;
	jbyte *bytes = (*env)->GetByteArrayElements(env, array, NULL);
	jsize length = (*env)->GetArrayLength(env, array);
	jclass defined = (*env)->DefineClass(env, chars, loader, bytes, length);
	(*env)->ReleaseByteArrayElements(env, array, bytes, JNI_ABORT);
	if (chars)
		(*env)->ReleaseStringUTFChars(env, name, chars);
	return defined;
}
