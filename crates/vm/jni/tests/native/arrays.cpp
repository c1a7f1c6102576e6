#include <jni.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define FUNCTION(type, name) extern "C" JNIEXPORT type JNICALL Java_Arrays_##name

FUNCTION(jobjectArray, types)(JNIEnv *env, jclass)
{
	jobjectArray all = env->NewObjectArray(9, env->FindClass("java/lang/Object"), nullptr);
	jobject arrays[] = {
		env->NewBooleanArray(1), env->NewByteArray(2), env->NewCharArray(3),
		env->NewShortArray(4), env->NewIntArray(5), env->NewLongArray(6),
		env->NewFloatArray(7), env->NewDoubleArray(8),
		env->NewObjectArray(9, env->FindClass("[I"), nullptr),
	};
	for (int i = 0; i < 9; i++)
		env->SetObjectArrayElement(all, i, arrays[i]);
	return all;
}

FUNCTION(jint, twice)(JNIEnv *env, jclass, jintArray array, jint mode)
{
	jboolean isCopy = 7;
	jint *elements = env->GetIntArrayElements(array, &isCopy);
	for (jint i = 0; i < env->GetArrayLength(array); i++)
		elements[i] *= 2;
	env->ReleaseIntArrayElements(array, elements, mode);
	if (mode == JNI_COMMIT)
		env->ReleaseIntArrayElements(array, elements, JNI_ABORT);
	return isCopy;
}

#define EACH(each)                                                                              \
	each(z, Boolean) each(b, Byte) each(c, Char) each(s, Short) each(i, Int) each(j, Long)  \
	each(f, Float) each(d, Double)
#define ALL                                                                                     \
	JNIEnv *env, jclass, jbooleanArray z, jbyteArray b, jcharArray c, jshortArray s,        \
		jintArray i, jlongArray j, jfloatArray f, jdoubleArray d

FUNCTION(void, twiceAll)(ALL)
{
#define TWICE(array, name)                                                                      \
	{                                                                                       \
		auto *elements = env->Get##name##ArrayElements(array, nullptr);                 \
		for (jint at = 0; at < env->GetArrayLength(array); at++)                        \
			elements[at] = #name[1] == 'o' && #name[0] == 'B' ? !elements[at]       \
								      : elements[at] + elements[at]; \
		env->Release##name##ArrayElements(array, elements, 0);                          \
	}
	EACH(TWICE)
}

FUNCTION(void, regions)(ALL)
{
	/* The second element becomes the first. */
#define MOVE(array, name)                                                                       \
	{                                                                                       \
		OF_##array element;                                                             \
		env->Get##name##ArrayRegion(array, 1, 1, &element);                             \
		env->Set##name##ArrayRegion(array, 0, 1, &element);                             \
	}
	using OF_z = jboolean;
	using OF_b = jbyte;
	using OF_c = jchar;
	using OF_s = jshort;
	using OF_i = jint;
	using OF_j = jlong;
	using OF_f = jfloat;
	using OF_d = jdouble;
	EACH(MOVE)
}

FUNCTION(jintArray, region)(JNIEnv *env, jclass, jintArray array, jint start, jint count)
{
	jint elements[16];
	env->GetIntArrayRegion(array, start, count, elements);
	if (env->ExceptionCheck())
		return nullptr;
	jintArray result = env->NewIntArray(count);
	env->SetIntArrayRegion(result, 0, count, elements);
	return result;
}

FUNCTION(jlong, sumInPlace)(JNIEnv *env, jclass, jlongArray array)
{
	jlong sum = 0;
	jint length = env->GetArrayLength(array);
	auto *elements = static_cast<jlong *>(env->GetPrimitiveArrayCritical(array, nullptr));
	for (jint i = 0; i < length; i++)
		sum += elements[i]++;
	env->ReleasePrimitiveArrayCritical(array, elements, 0);
	return sum;
}

FUNCTION(jobject, get)(JNIEnv *env, jclass, jobjectArray array, jint index)
{
	return env->GetObjectArrayElement(array, index);
}
FUNCTION(void, set)(JNIEnv *env, jclass, jobjectArray array, jint index, jobject value)
{
	env->SetObjectArrayElement(array, index, value);
}
FUNCTION(jobjectArray, filled)(JNIEnv *env, jclass, jint length, jobject value)
{
	return env->NewObjectArray(length, env->FindClass("java/lang/String"), value);
}
FUNCTION(jintArray, made)(JNIEnv *env, jclass, jint length) { return env->NewIntArray(length); }

FUNCTION(jobject, buffer)(JNIEnv *env, jclass, jint capacity)
{
	return env->NewDirectByteBuffer(std::memset(std::malloc(capacity), 42, capacity), capacity);
}
FUNCTION(jstring, look)(JNIEnv *env, jclass, jobject buffer)
{
	char text[64];
	auto *address = static_cast<signed char *>(env->GetDirectBufferAddress(buffer));
	std::snprintf(text, sizeof(text), "%s %d", address ? "memory" : "none",
		      int(env->GetDirectBufferCapacity(buffer)));
	if (address)
		std::snprintf(text + std::strlen(text), 16, " %d", address[3]);
	return env->NewStringUTF(text);
}
FUNCTION(void, freeBuffer)(JNIEnv *env, jclass, jobject buffer)
{
	std::free(env->GetDirectBufferAddress(buffer));
}
