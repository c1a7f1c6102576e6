package android.os;

parcelable Bundle;
