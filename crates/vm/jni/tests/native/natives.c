#include <jni.h>
#include <stdio.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Natives_##name

static int is_loaded;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved)
{
	JNIEnv *env;
	if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) != JNI_OK)
		return JNI_ERR;
	/* Classes are found as whoever loads the library finds them: each test has one of these. */
	is_loaded = (*env)->FindClass(env, "Natives") != NULL && reserved == NULL;
	return JNI_VERSION_1_6;
}
FUNCTION(jboolean, isLoaded)(JNIEnv *env, jclass c) { return is_loaded; }

static jint add_ten(JNIEnv *env, jclass c, jint value) { return value + 10; }
static jint add_twenty(JNIEnv *env, jclass c, jint value) { return value + 20; }
FUNCTION(jint, both)(JNIEnv *env, jclass c, jint value) { return value; }

FUNCTION(jint, exchange)(JNIEnv *env, jclass c, jint which)
{
	JNINativeMethod methods[] = {
		{"registered", "(I)I", which == 1 ? add_ten : add_twenty},
		{"both", "(I)I", which == 1 ? add_ten : add_twenty},
	};
	return which ? (*env)->RegisterNatives(env, c, methods, 2) : (*env)->UnregisterNatives(env, c);
}
FUNCTION(jint, refuse)(JNIEnv *env, jclass c, jint what)
{
	JNINativeMethod none = {what ? "once" : "none", what ? "(Ljava/lang/String;)Ljava/lang/String;" : "()V", add_ten};
	jint result = (*env)->RegisterNatives(env, c, &none, 1);
	int is_thrown = (*env)->ExceptionCheck(env);
	(*env)->ExceptionClear(env);
	return is_thrown ? result : 77;
}

FUNCTION(jint, inherit)(JNIEnv *env, jclass c, jclass lower)
{
	JNINativeMethod inherited = {"inherited", "(I)I", add_ten};
	JNINativeMethod overridden = {"overridden", "(I)I", add_ten};
	jint result = (*env)->RegisterNatives(env, lower, &inherited, 1);
	(*env)->RegisterNatives(env, lower, &overridden, 1);
	if (!(*env)->ExceptionCheck(env))
		return 77;
	(*env)->ExceptionClear(env);
	return result;
}

FUNCTION(jobject, method)(JNIEnv *env, jclass c, jclass of, jobject method)
{
	jmethodID id = (*env)->FromReflectedMethod(env, method);
	if (id != (*env)->GetMethodID(env, of, "twice", "(Ljava/lang/String;)Ljava/lang/String;"))
		return NULL;
	return (*env)->ToReflectedMethod(env, of, id, JNI_FALSE);
}
FUNCTION(jobject, constructor)(JNIEnv *env, jclass c, jobject constructor)
{
	return (*env)->NewObject(env, c, (*env)->FromReflectedMethod(env, constructor), 7);
}
FUNCTION(jobject, field)(JNIEnv *env, jclass c, jobject field, jobject object)
{
	jfieldID id = (*env)->FromReflectedField(env, field);
	if ((*env)->GetStringLength(env, (*env)->GetObjectField(env, object, id)) != 4)
		return NULL;
	return (*env)->ToReflectedField(env, c, id, JNI_FALSE);
}
FUNCTION(jstring, classes)(JNIEnv *env, jclass c)
{
	char text[64];
	jclass object = (*env)->FindClass(env, "java/lang/Object");
	jclass string = (*env)->FindClass(env, "java/lang/String");
	jclass strings = (*env)->FindClass(env, "[Ljava/lang/String;");
	jclass objects = (*env)->FindClass(env, "[Ljava/lang/Object;");
	jclass comparable = (*env)->FindClass(env, "java/lang/Comparable");
	snprintf(text, sizeof(text), "%d%d%d%d%d%d%d%d%d", (*env)->IsSameObject(env, (*env)->GetSuperclass(env, string), object),
		 (*env)->GetSuperclass(env, object) == NULL, (*env)->GetSuperclass(env, comparable) == NULL,
		 (*env)->IsAssignableFrom(env, string, object), (*env)->IsAssignableFrom(env, object, string),
		 (*env)->IsAssignableFrom(env, string, comparable), (*env)->IsAssignableFrom(env, strings, objects),
		 (*env)->IsInstanceOf(env, NULL, string), (*env)->IsInstanceOf(env, c, string));
	return (*env)->NewStringUTF(env, text);
}
FUNCTION(jint, version)(JNIEnv *env, jclass c) { return (*env)->GetVersion(env); }
FUNCTION(void, defineClass)(JNIEnv *env, jclass c, jbyteArray bytes)
{
	jsize length = (*env)->GetArrayLength(env, bytes);
	jbyte *elements = (*env)->GetByteArrayElements(env, bytes, NULL);
	(*env)->DefineClass(env, "There", NULL, elements, length);
	(*env)->ReleaseByteArrayElements(env, bytes, elements, JNI_ABORT);
}
