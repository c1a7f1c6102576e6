#include <jni.h>
#include <string.h>
#include <unistd.h>

/* A library with both functions. */
static void say(const char *text)
{
	if (write(1, text, strlen(text)) < 0)
		_exit(1);
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved)
{
	say("loaded\n");
	return JNI_VERSION_1_6;
}

JNIEXPORT void JNICALL JNI_OnUnload(JavaVM *vm, void *reserved)
{
	JNIEnv *env;
	if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) != JNI_OK)
		say("no env\n");
	/* Java still runs. */
	jclass c = (*env)->FindClass(env, "java/lang/Thread");
	jmethodID yield = (*env)->GetStaticMethodID(env, c, "yield", "()V");
	(*env)->CallStaticVoidMethod(env, c, yield);
	say("unloaded\n");
}
