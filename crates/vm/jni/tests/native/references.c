#include <jni.h>
#include <stdio.h>

#define FUNCTION(type, name) JNIEXPORT type JNICALL Java_References_##name

FUNCTION(jboolean, locals)(JNIEnv *env, jclass c, jobject object)
{
	jobject first = (*env)->NewLocalRef(env, object);
	jobject others[10];
	for (int i = 0; i < 10; i++)
		others[i] = (*env)->NewStringUTF(env, "other");
	(*env)->DeleteLocalRef(env, others[3]);
	(*env)->DeleteLocalRef(env, others[9]);
	(*env)->DeleteLocalRef(env, NULL);
	others[3] = (*env)->NewLocalRef(env, first);
	others[9] = (*env)->NewLocalRef(env, NULL);
	return (*env)->IsSameObject(env, first, object) && (*env)->IsSameObject(env, others[3], object) &&
	       !(*env)->IsSameObject(env, others[4], object) && others[9] == NULL &&
	       (*env)->IsSameObject(env, NULL, NULL) && !(*env)->IsSameObject(env, NULL, object) &&
	       (*env)->EnsureLocalCapacity(env, 100) == JNI_OK;
}

FUNCTION(jobject, frames)(JNIEnv *env, jclass c, jobject object)
{
	jobject result = object;
	for (int round = 0; round < 200; round++) {
		if ((*env)->PushLocalFrame(env, 16))
			return NULL;
		for (int i = 0; i < 10; i++) {
			jobject text = (*env)->NewStringUTF(env, "inner");
			if (i % 3 == 0)
				(*env)->DeleteLocalRef(env, text);
		}
		(*env)->PushLocalFrame(env, 1);
		result = (*env)->PopLocalFrame(env, (*env)->NewLocalRef(env, object));
		jobject outer = (*env)->PopLocalFrame(env, result);
		result = outer;
	}
	/* A frame that is left open ends with the native method. */
	(*env)->PushLocalFrame(env, 16);
	return (*env)->NewLocalRef(env, result);
}

FUNCTION(jobject, many)(JNIEnv *env, jclass c, jint count)
{
	jclass strings = (*env)->FindClass(env, "java/lang/String");
	jobjectArray array = (*env)->NewObjectArray(env, count, strings, NULL);
	for (jint i = 0; i < count; i++) {
		char text[16];
		snprintf(text, sizeof(text), "%d", i);
		jstring string = (*env)->NewStringUTF(env, text);
		(*env)->SetObjectArrayElement(env, array, i, string);
		if (i % 2)
			(*env)->DeleteLocalRef(env, string);
	}
	for (jint i = 0; i < count; i += 7) {
		jstring string = (*env)->GetObjectArrayElement(env, array, i);
		char text[16];
		int expected = snprintf(text, sizeof(text), "%d", i);
		if ((*env)->GetStringUTFLength(env, string) != expected)
			return NULL;
		(*env)->DeleteLocalRef(env, string);
	}
	return array;
}

static jobject global;
static jweak weak;

FUNCTION(void, keep)(JNIEnv *env, jclass c, jobject object) { global = (*env)->NewGlobalRef(env, object); }
FUNCTION(jobject, kept)(JNIEnv *env, jclass c) { return global; }
FUNCTION(void, release)(JNIEnv *env, jclass c)
{
	(*env)->DeleteGlobalRef(env, global);
	global = NULL;
}
FUNCTION(void, watch)(JNIEnv *env, jclass c, jobject object) { weak = (*env)->NewWeakGlobalRef(env, object); }
FUNCTION(jobject, watched)(JNIEnv *env, jclass c) { return (*env)->NewLocalRef(env, weak); }
FUNCTION(jboolean, isGone)(JNIEnv *env, jclass c) { return (*env)->IsSameObject(env, weak, NULL); }
FUNCTION(void, stopWatching)(JNIEnv *env, jclass c) { (*env)->DeleteWeakGlobalRef(env, weak); }

FUNCTION(jstring, kinds)(JNIEnv *env, jclass c, jobject object)
{
	char text[64];
	jobject global = (*env)->NewGlobalRef(env, object);
	jobject weak = (*env)->NewWeakGlobalRef(env, object);
	snprintf(text, sizeof(text), "%d %d %d %d %d", (*env)->GetObjectRefType(env, object),
		 (*env)->GetObjectRefType(env, global), (*env)->GetObjectRefType(env, weak),
		 (*env)->GetObjectRefType(env, NULL), (*env)->GetObjectRefType(env, c));
	(*env)->DeleteGlobalRef(env, global);
	(*env)->DeleteWeakGlobalRef(env, weak);
	return (*env)->NewStringUTF(env, text);
}

/* A list that only C's references hold at first. */
FUNCTION(jobject, link)(JNIEnv *env, jclass c, jint count, jclass of)
{
	jmethodID make = (*env)->GetMethodID(env, of, "<init>", "()V");
	jfieldID next = (*env)->GetFieldID(env, of, "next", "LReferences$Node;");
	jfieldID number = (*env)->GetFieldID(env, of, "number", "I");
	jobject first = NULL;
	for (jint i = 0; i < count; i++) {
		jobject node = (*env)->NewObject(env, of, make);
		(*env)->SetIntField(env, node, number, i);
		(*env)->SetObjectField(env, node, next, first);
		(*env)->DeleteLocalRef(env, first);
		first = node;
	}
	return first;
}
