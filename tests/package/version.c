// An unmodified Binder program: opens the device, and prints the protocol's version.
#include <fcntl.h>
#include <linux/android/binder.h>
#include <stdio.h>
#include <sys/ioctl.h>

int main(void)
{
    struct binder_version version;
    int device = open("/dev/binder", O_RDWR | O_CLOEXEC);
    if (device < 0 || ioctl(device, BINDER_VERSION, &version) != 0) {
        perror("version: /dev/binder");
        return 1;
    }
    printf("%d\n", version.protocol_version);
    return 0;
}
