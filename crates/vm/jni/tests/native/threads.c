#include <jni.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Threads_##name

static JavaVM *vm;
static jclass threads;
static jmethodID called;

static void find(JNIEnv *env, jclass c)
{
	if (threads)
		return;
	(*env)->GetJavaVM(env, &vm);
	threads = (*env)->NewGlobalRef(env, c);
	called = (*env)->GetStaticMethodID(env, c, "called", "(Ljava/lang/String;I)Ljava/lang/String;");
}

/* Calls Java, and makes and drops references. Returns how many answers were right. */
static int call(JNIEnv *env, int count, const char *expected)
{
	int right = 0;
	for (int i = 0; i < count; i++) {
		(*env)->PushLocalFrame(env, 8);
		jstring text = (*env)->NewStringUTF(env, "thread");
		jstring answer = (*env)->CallStaticObjectMethod(env, threads, called, text, i);
		const char *chars = (*env)->GetStringUTFChars(env, answer, NULL);
		right += strcmp(chars, expected) == 0;
		(*env)->ReleaseStringUTFChars(env, answer, chars);
		(*env)->PopLocalFrame(env, NULL);
	}
	return right;
}

static void *attached(void *count)
{
	JNIEnv *env, *again;
	int number = *(int *)count;
	if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) != JNI_EDETACHED)
		return (void *)-1;
	if ((*vm)->AttachCurrentThread(vm, (void **)&env, NULL) != JNI_OK)
		return (void *)-2;
	if ((*vm)->AttachCurrentThread(vm, (void **)&again, NULL) != JNI_OK || again != env)
		return (void *)-3;
	if ((*vm)->GetEnv(vm, (void **)&again, JNI_VERSION_1_2) != JNI_OK || again != env)
		return (void *)-4;
	if ((*vm)->GetEnv(vm, (void **)&again, 12345) != JNI_EVERSION)
		return (void *)-5;
	/* Classes of the program are found without a Java frame. */
	if (!(*env)->FindClass(env, "Threads"))
		return (void *)-6;
	long right = call(env, number, "thread true");
	if ((*vm)->DetachCurrentThread(vm) != JNI_OK)
		return (void *)-7;
	/* As a daemon, and it ends without being detached. */
	if ((*vm)->AttachCurrentThreadAsDaemon(vm, (void **)&env, NULL) != JNI_OK)
		return (void *)-8;
	right += call(env, number, "thread daemon true");
	return (void *)right;
}

FUNCTION(jint, run)(JNIEnv *env, jclass c, jint count, jint calls)
{
	pthread_t ids[16];
	long right = 0;
	find(env, c);
	for (int i = 0; i < count; i++)
		pthread_create(&ids[i], NULL, attached, &calls);
	for (int i = 0; i < count; i++) {
		void *result;
		pthread_join(ids[i], &result);
		right += (long)result;
	}
	return right;
}

static char name[256];

static void *with_name(void *group)
{
	JNIEnv *env;
	JavaVMAttachArgs args = {JNI_VERSION_1_6, "a named one", group};
	(*vm)->AttachCurrentThread(vm, (void **)&env, &args);
	jclass thread = (*env)->FindClass(env, "java/lang/Thread");
	jmethodID current = (*env)->GetStaticMethodID(env, thread, "currentThread", "()Ljava/lang/Thread;");
	jobject own = (*env)->CallStaticObjectMethod(env, thread, current);
	jmethodID get = (*env)->GetMethodID(env, thread, "getName", "()Ljava/lang/String;");
	jstring text = (*env)->CallObjectMethod(env, own, get);
	(*env)->GetStringUTFRegion(env, text, 0, (*env)->GetStringLength(env, text), name);
	jmethodID get_group = (*env)->GetMethodID(env, thread, "getThreadGroup", "()Ljava/lang/ThreadGroup;");
	jobject found = (*env)->CallObjectMethod(env, own, get_group);
	strcat(name, (*env)->IsSameObject(env, found, group) ? " in its group" : " elsewhere");
	(*vm)->DetachCurrentThread(vm);
	return NULL;
}

FUNCTION(jstring, named)(JNIEnv *env, jclass c)
{
	pthread_t id;
	find(env, c);
	jclass groups = (*env)->FindClass(env, "java/lang/ThreadGroup");
	jmethodID make = (*env)->GetMethodID(env, groups, "<init>", "(Ljava/lang/String;)V");
	jobject group = (*env)->NewObject(env, groups, make, (*env)->NewStringUTF(env, "group"));
	group = (*env)->NewGlobalRef(env, group);
	pthread_create(&id, NULL, with_name, group);
	pthread_join(id, NULL);
	(*env)->DeleteGlobalRef(env, group);
	return (*env)->NewStringUTF(env, name);
}

static void *never_attached(void *result)
{
	JNIEnv *env = (JNIEnv *)1;
	*(jint *)result = (*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) * 10 + (env == NULL) +
			  (*vm)->DetachCurrentThread(vm);
	return NULL;
}

FUNCTION(jint, detached)(JNIEnv *env, jclass c)
{
	pthread_t id;
	jint result;
	pthread_create(&id, NULL, never_attached, &result);
	pthread_join(id, NULL);
	return result;
}

/* Java has started the thread, and C cannot take it away. */
FUNCTION(jint, own)(JNIEnv *env, jclass c) { return (*vm)->DetachCurrentThread(vm) < 0; }

FUNCTION(void, hold)(JNIEnv *env, jclass c, jobject lock)
{
	(*env)->MonitorEnter(env, lock);
	(*env)->MonitorEnter(env, lock);
	(*env)->MonitorExit(env, lock);
	threads = threads ? threads : c;
	(*env)->SetStaticObjectField(env, c, (*env)->GetStaticFieldID(env, c, "shared", "Ljava/lang/Object;"), lock);
}
FUNCTION(jboolean, isHeld)(JNIEnv *env, jclass c, jobject lock)
{
	jobject held = (*env)->GetStaticObjectField(
		env, c, (*env)->GetStaticFieldID(env, c, "shared", "Ljava/lang/Object;"));
	if (!lock)
		return (*env)->MonitorExit(env, held);
	return (*env)->IsSameObject(env, lock, held);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_released;

FUNCTION(void, blockUntil)(JNIEnv *env, jclass c, jintArray unused)
{
	pthread_mutex_lock(&mutex);
	while (!is_released)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
}
FUNCTION(void, release)(JNIEnv *env, jclass c)
{
	pthread_mutex_lock(&mutex);
	is_released = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void *failing(void *unused)
{
	JNIEnv *env;
	(*vm)->AttachCurrentThread(vm, (void **)&env, NULL);
	jmethodID failing = (*env)->GetStaticMethodID(env, threads, "failing", "()V");
	(*env)->CallStaticVoidMethod(env, threads, failing);
	(*vm)->DetachCurrentThread(vm);
	return NULL;
}
FUNCTION(void, endWithException)(JNIEnv *env, jclass c)
{
	pthread_t id;
	pthread_create(&id, NULL, failing, NULL);
	pthread_join(id, NULL);
}

static void *with_monitor(void *lock)
{
	JNIEnv *env;
	(*vm)->AttachCurrentThread(vm, (void **)&env, NULL);
	for (int i = 0; i < 3; i++)
		(*env)->MonitorEnter(env, lock);
	(*env)->MonitorExit(env, lock);
	(*vm)->DetachCurrentThread(vm);
	return NULL;
}
FUNCTION(void, detachWithMonitor)(JNIEnv *env, jclass c, jobject lock)
{
	pthread_t id;
	lock = (*env)->NewGlobalRef(env, lock);
	pthread_create(&id, NULL, with_monitor, lock);
	pthread_join(id, NULL);
	(*env)->DeleteGlobalRef(env, lock);
}
