package android.content;

parcelable IntentFilter;
