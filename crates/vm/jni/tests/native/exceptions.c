#include <jni.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Exceptions_##name

FUNCTION(void, throwNew)(JNIEnv *env, jclass c, jclass of, jstring message)
{
	const char *chars = message ? (*env)->GetStringUTFChars(env, message, NULL) : NULL;
	jint thrown = (*env)->ThrowNew(env, of, chars);
	if (chars)
		(*env)->ReleaseStringUTFChars(env, message, chars);
	if (thrown != JNI_OK)
		(*env)->FatalError(env, "nothing was thrown");
}
FUNCTION(void, throwIt)(JNIEnv *env, jclass c, jthrowable exception) { (*env)->Throw(env, exception); }

static jint call_fail(JNIEnv *env, jclass c, jint depth)
{
	return (*env)->CallStaticIntMethod(env, c, (*env)->GetStaticMethodID(env, c, "fail", "(I)I"), depth);
}

FUNCTION(jstring, catchIt)(JNIEnv *env, jclass c, jint depth)
{
	call_fail(env, c, depth);
	if (!(*env)->ExceptionCheck(env))
		return NULL;
	jthrowable exception = (*env)->ExceptionOccurred(env);
	(*env)->ExceptionClear(env);
	if ((*env)->ExceptionCheck(env) || (*env)->ExceptionOccurred(env))
		return NULL;
	jclass own = (*env)->FindClass(env, "Exceptions$Own");
	if (!(*env)->IsInstanceOf(env, exception, own))
		return NULL;
	jmethodID message = (*env)->GetMethodID(env, own, "getMessage", "()Ljava/lang/String;");
	return (*env)->CallObjectMethod(env, exception, message);
}
FUNCTION(jint, pass)(JNIEnv *env, jclass c, jint depth)
{
	jint result = call_fail(env, c, depth);
	/* These may be called meanwhile. */
	jobject local = (*env)->ExceptionOccurred(env);
	(*env)->PushLocalFrame(env, 1);
	(*env)->PopLocalFrame(env, NULL);
	(*env)->DeleteLocalRef(env, local);
	return result;
}
FUNCTION(jint, occurred)(JNIEnv *env, jclass c) { return (*env)->ExceptionOccurred(env) == NULL; }

FUNCTION(jstring, lookUp)(JNIEnv *env, jclass c, jint what)
{
	switch (what) {
	case 0: (*env)->FindClass(env, "there/is/None"); break;
	case 1: (*env)->GetMethodID(env, c, "none", "()V"); break;
	case 2: (*env)->GetMethodID(env, c, "occurred", "()I"); break;
	case 3: (*env)->GetStaticMethodID(env, c, "fail", "()V"); break;
	case 4: (*env)->GetFieldID(env, c, "none", "I"); break;
	case 5: (*env)->GetStaticFieldID(env, c, "none", "I"); break;
	case 6: (*env)->AllocObject(env, (*env)->FindClass(env, "java/lang/Runnable")); break;
	case 7: (*env)->MonitorExit(env, c); break;
	}
	jthrowable exception = (*env)->ExceptionOccurred(env);
	if (!exception)
		return (*env)->NewStringUTF(env, "nothing");
	(*env)->ExceptionClear(env);
	jclass of = (*env)->GetObjectClass(env, exception);
	jmethodID name = (*env)->GetMethodID(env, (*env)->GetObjectClass(env, of), "getName", "()Ljava/lang/String;");
	return (*env)->CallObjectMethod(env, of, name);
}
FUNCTION(void, describe)(JNIEnv *env, jclass c)
{
	call_fail(env, c, 0);
	(*env)->ExceptionDescribe(env);
	if ((*env)->ExceptionCheck(env))
		(*env)->FatalError(env, "it was described and is pending still");
}
