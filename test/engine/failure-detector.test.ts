import { describe, expect, it } from 'vitest';
import { FailureDetector } from '../../src/engine/lease/failure-detector.js';
import { virtualClock } from '../../src/testing/index.js';
import { aCluster } from '../engine/support.js';

const LEASE_MS = 30_000;
const silent = { life: 'silent', leftMs: -1 };

/** The detector of an instance that renews on time, on a server whose clock can be set. */
function aDetector(leaseMs = LEASE_MS) {
  const clock = virtualClock(new Date('2026-01-01T00:00:00Z'));
  const server = { aheadMs: 0 };
  const now = (): number => clock.now() + server.aheadMs;
  const detector = new FailureDetector({ ...clock, now, monotonic: () => clock.monotonic() }, leaseMs);
  detector.renewed();
  const renewFor = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += leaseMs / 3) {
      await clock.advance(leaseMs / 3);
      detector.renewed();
    }
  };
  const look = (): void => detector.observe({ ...aCluster([silent]), now: new Date(now()) });
  return { clock, detector, renewFor, server, look };
}

describe('failure detector', () => {
  it('waits for the end of a lease that has not expired', () => {
    expect(aDetector().detector.waitMs({ life: 'alive', leftMs: 12_345 })).toBe(12_345);
  });

  it('grants a silent instance a whole lease after its own start', async () => {
    const { detector, renewFor } = aDetector();
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(LEASE_MS);
    await renewFor(LEASE_MS);
    expect(detector.waitMs(silent)).toBe(0);
  });

  it('declares an instance dead within 1.5 s after its lease in normal operation', async () => {
    const { clock, detector, renewFor } = aDetector();
    await renewFor(LEASE_MS * 2);
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(1_500);
    await clock.advance(1_500);
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(0);
  });

  it('starts over with an instance that renewed in the meantime', async () => {
    const { clock, detector, renewFor } = aDetector();
    await renewFor(LEASE_MS * 2);
    detector.observe(aCluster([silent]));
    await clock.advance(1_500);
    detector.observe(aCluster([{ life: 'silent', leftMs: 20_000 }]));
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(1_500);
  });

  it('grants every instance a whole lease after a gap in its own renewals', async () => {
    const { clock, detector, renewFor } = aDetector();
    await renewFor(LEASE_MS * 2);
    detector.observe(aCluster([silent]));
    await clock.advance(LEASE_MS * 100);
    expect(detector.waitMs(silent)).toBe(LEASE_MS);
    detector.renewed();
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(LEASE_MS);
    await renewFor(LEASE_MS);
    expect(detector.waitMs(silent)).toBe(0);
  });

  it('treats a server clock that jumped forward as a gap', async () => {
    const { detector, renewFor, server } = aDetector();
    await renewFor(LEASE_MS * 2);
    expect(detector.graceMs).toBe(0);
    server.aheadMs = 3_600_000;
    detector.renewed();
    expect(detector.graceMs).toBe(LEASE_MS);
  });

  it('notices a server clock that jumped forward before its own next renewal', async () => {
    const { clock, detector, renewFor, server, look } = aDetector();
    await renewFor(LEASE_MS * 2);
    server.aheadMs = 3_600_000;
    for (let passedMs = 0; passedMs < LEASE_MS / 3; passedMs += 1_000) {
      look();
      expect(detector.waitMs(silent)).toBe(LEASE_MS);
      await clock.advance(1_000);
    }
    detector.renewed();
    look();
    expect(detector.waitMs(silent)).toBe(LEASE_MS);
    await renewFor(LEASE_MS);
    look();
    expect(detector.waitMs(silent)).toBe(0);
  });

  it('grants half of a long lease, which is longer than the time between two renewals', () => {
    const { detector, look } = aDetector(600_000);
    look();
    expect(detector.waitMs(silent)).toBe(300_000);
  });
});
