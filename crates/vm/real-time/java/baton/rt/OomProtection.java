package baton.rt;

/** Keeps the kernel from killing the process, and those that it starts, when memory is short. */
public final class OomProtection extends Setting {
    public OomProtection() {
        super(OOM, 0);
    }
}
