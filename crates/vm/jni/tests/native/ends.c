#include <jni.h>
#include <pthread.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Ends_##name

static JavaVM *vm;
static jobject kept;

FUNCTION(jint, destroy)(JNIEnv *env, jclass c)
{
	(*env)->GetJavaVM(env, &vm);
	return (*vm)->DestroyJavaVM(vm);
}

static void *destroying(void *unused)
{
	(*vm)->DestroyJavaVM(vm);
	return NULL;
}

/* A thread that Java does not know destroys the VM, and nobody waits for its end. */
FUNCTION(void, destroyElsewhere)(JNIEnv *env, jclass c)
{
	pthread_t id;
	(*env)->GetJavaVM(env, &vm);
	pthread_create(&id, NULL, destroying, NULL);
	pthread_detach(id);
}

/* Attaches itself, calls Java, and ends: neither the exception nor the thread is taken back. */
static void *ending(void *class)
{
	JNIEnv *env;
	(*vm)->AttachCurrentThread(vm, (void **)&env, NULL);
	(*env)->MonitorEnter(env, kept);
	(*env)->MonitorEnter(env, kept);
	(*env)->CallStaticVoidMethod(env, class, (*env)->GetStaticMethodID(env, class, "ending", "()V"));
	return NULL;
}

FUNCTION(void, end)(JNIEnv *env, jclass c, jobject lock)
{
	pthread_t id;
	(*env)->GetJavaVM(env, &vm);
	kept = (*env)->NewGlobalRef(env, lock);
	pthread_create(&id, NULL, ending, (*env)->NewGlobalRef(env, c));
	pthread_join(id, NULL);
}
