package baton.rt;

/**
 * Keeps all processors at one frequency. Processes that want the same frequency share the lock;
 * while another one is held, the lock is refused.
 */
public final class FrequencyLock extends Setting {
    /** The highest frequency of each processor. */
    public FrequencyLock() {
        super(FREQUENCY, 0);
    }

    /**
     * @param khz the frequency, in kHz
     * @throws IllegalArgumentException if a processor cannot run at it
     */
    public FrequencyLock(int khz) {
        super(FREQUENCY, check(khz));
    }

    private static int check(int khz) {
        if (khz <= 0) {
            throw new IllegalArgumentException(khz + " kHz");
        }
        return khz;
    }
}
