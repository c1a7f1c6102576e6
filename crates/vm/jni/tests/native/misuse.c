#include <jni.h>
#include <pthread.h>
#include <string.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_Misuse_##name

static jobject left;

FUNCTION(void, stale)(JNIEnv *env, jclass c, jobject object) { left = (*env)->NewStringUTF(env, "left"); }
FUNCTION(jobject, returned)(JNIEnv *env, jclass c) { return c; }

static void *elsewhere(void *env)
{
	(*(JNIEnv *)env)->GetVersion(env);
	return NULL;
}

FUNCTION(void, misuse)(JNIEnv *env, jclass c, jstring what, jobject object, jstring text, jintArray numbers,
		       jintArray others)
{
	char name[64] = "";
	(*env)->GetStringUTFRegion(env, what, 0, (*env)->GetStringLength(env, what), name);
#define CASE(of) else if (strcmp(name, of) == 0)
	jclass strings = (*env)->FindClass(env, "java/lang/String");
	jfieldID text_field = (*env)->GetFieldID(env, c, "text", "Ljava/lang/String;");
	jmethodID take = (*env)->GetStaticMethodID(env, c, "take", "(Ljava/lang/String;)V");
	jmethodID give = (*env)->GetMethodID(env, c, "give", "()I");
	jobject one = (*env)->NewStringUTF(env, "one");
	jobject other = (*env)->NewStringUTF(env, "other");
	jobject global = (*env)->NewGlobalRef(env, one);
	if (0) {
	}
	CASE("deleted local") {
		(*env)->DeleteLocalRef(env, one);
		(*env)->GetObjectClass(env, one);
	}
	CASE("reused local") {
		(*env)->DeleteLocalRef(env, one);
		(*env)->NewStringUTF(env, "another in its place");
		(*env)->GetObjectClass(env, one);
	}
	CASE("stale local") (*env)->GetObjectClass(env, left);
	CASE("deleted global") {
		(*env)->DeleteGlobalRef(env, global);
		(*env)->GetObjectClass(env, global);
	}
	CASE("no reference") (*env)->NewLocalRef(env, (jobject)name);
	CASE("local as global") (*env)->DeleteGlobalRef(env, one);
	CASE("global as local") (*env)->DeleteLocalRef(env, global);
	CASE("null object") (*env)->GetObjectClass(env, NULL);
	CASE("no class") (*env)->GetSuperclass(env, one);
	CASE("no string") (*env)->GetStringLength(env, c);
	CASE("no array") (*env)->GetArrayLength(env, one);
	CASE("other array") (*env)->GetFloatArrayElements(env, numbers, NULL);
	CASE("copy of another") {
		jint *elements = (*env)->GetIntArrayElements(env, numbers, NULL);
		(*env)->ReleaseIntArrayElements(env, others, elements, 0);
	}
	CASE("other elements") {
		void *elements = (*env)->GetPrimitiveArrayCritical(env, numbers, NULL);
		(*env)->ReleasePrimitiveArrayCritical(env, others, elements, 0);
	}
	CASE("null method") (*env)->CallVoidMethod(env, object, NULL);
	CASE("other result") (*env)->CallLongMethod(env, object, give);
	CASE("other receiver") (*env)->CallIntMethod(env, c, give);
	CASE("other argument") (*env)->CallStaticVoidMethod(env, c, take, c);
	CASE("static as virtual") (*env)->CallVoidMethod(env, object, take, one);
	CASE("virtual as static") (*env)->CallStaticIntMethod(env, c, give);
	CASE("other constructor") (*env)->NewObject(env, c, (*env)->GetMethodID(env, strings, "<init>", "()V"));
	CASE("null field") (*env)->GetIntField(env, object, NULL);
	CASE("other field") (*env)->GetIntField(env, object, text_field);
	CASE("other value") (*env)->SetObjectField(env, object, text_field, c);
	CASE("other holder") (*env)->GetObjectField(env, c, text_field);
	CASE("pending exception") {
		(*env)->CallStaticVoidMethod(env, c, (*env)->GetStaticMethodID(env, c, "fail", "()V"));
		(*env)->FindClass(env, "java/lang/String");
	}
	CASE("no exception") (*env)->Throw(env, one);
	CASE("no frame") (*env)->PopLocalFrame(env, NULL);
	CASE("malformed text") (*env)->NewStringUTF(env, "a\xff");
	CASE("other thread") {
		pthread_t id;
		pthread_create(&id, NULL, elsewhere, env);
		pthread_join(id, NULL);
	}
	CASE("too many locals") {
		for (;;)
			(*env)->NewLocalRef(env, other);
	}
	CASE("fatal error") (*env)->FatalError(env, "it is fatal");
}
