package android.content;

parcelable Intent;
