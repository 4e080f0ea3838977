// Versions of groups over transports without blobs and with keys in band. A device that is named a version asks the device
// that has named it, and gets it as a server would have it: sealed, and checked in the same way. Question and answer are
// signals, sealed for the two devices.

import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection
import Synchronization

/// How often this device has handed versions over.
struct HandedOverGroups {
    private struct Reader: Hashable {
        var device: DeviceID
        var digest: [UInt8]
    }

    /// Ours: answers to one device about one version in a period, and those to all devices. One has up to some hundred
    /// lines.
    private static let (limit, commonLimit) = (4, 64)
    private static let period: Duration = .seconds(60)

    private var counts: [Reader: Int] = [:]
    private var begin: ContinuousClock.Instant?

    /// Whether a version may be handed over now; if so, counts it.
    mutating func isDue(_ digest: [UInt8], for device: DeviceID, now: ContinuousClock.Instant) -> Bool {
        if begin.map({ $0 + Self.period <= now }) ?? true { (counts, begin) = ([:], now) }
        let reader = Reader(device: device, digest: digest)
        guard counts[reader, default: 0] < Self.limit, counts.values.reduce(0, +) < Self.commonLimit else {
            return false
        }
        counts[reader, default: 0] += 1
        return true
    }
}

extension CypherMessenger {
    /// The kinds of signals: base64 of the ``GroupReference``; and the same, with a space and base64 of the blob after it
    /// if the device has the version.
    private static let (questionKind, answerKind) = ("group-wanted", "group")

    /// Ours: the pause before a version is asked for again, in seconds, doubled each time; and the longest one.
    static let askPause: Int64 = 60
    private static let longestAskPause: Int64 = 3600
    /// Ours: how long an answer may be under way, in seconds. At one line a second a long one takes minutes.
    private static let answerLifetime: Int64 = 600

    /// Whether members hand versions of groups over, because no server keeps them.
    var handsGroupsOver: Bool { transport is any IntroducingTransportClient }

    func startHandingOver() {
        handleSignals(Self.questionKind) { [weak self] in await self?.answer($0) }
        handleSignals(Self.answerKind) { [weak self] in await self?.takeGroup($0) }
    }

    // MARK: Asking

    /// Asks for a version until it has come or is not wanted any more.
    func wantFromMember(_ reference: GroupReference) {
        groupReads.start(
            reference,
            { [weak self] in
                var pause = Self.askPause
                while let isWanted = await self?.isWanted(reference), isWanted {
                    // Without a session it is asked for when keys were exchanged.
                    try? await self?.ask(for: reference, lifetime: pause)
                    guard (try? await Task.sleep(for: .seconds(pause))) != nil else { return true }
                    pause = min(pause * 2, Self.longestAskPause)
                }
                return false
            },
            afterwards: { [weak self] in
                guard let self, await self.isWanted(reference) else { return }
                self.wantFromMember(reference)
            })
    }

    private func isWanted(_ reference: GroupReference) async -> Bool {
        (try? await engine.read { $0.wantedGroups.contains(reference) }) ?? false
    }

    /// Asks once.
    ///
    /// - Throws: ``CypherMessengerError/keysMissing`` if there is no session with the device.
    func ask(for reference: GroupReference, lifetime: Int64) async throws {
        guard let holder = reference.holder,
            let owner = try await engine.read({ $0.own.owner(of: holder) })
        else { throw CypherMessengerError.keysMissing }
        try await send(
            SignalJob(
                to: owner == .own ? username.raw : owner.name, device: holder, kind: Self.questionKind,
                text: Base64.text(reference.bytes), lifetime: lifetime))
    }

    /// Asks again for all versions that are wanted.
    func askForGroups() async {
        guard handsGroupsOver, let wanted = try? await engine.read(\.wantedGroups) else { return }
        for reference in wanted { try? await ask(for: reference, lifetime: Self.askPause) }
    }

    /// Takes a version that was asked for.
    private func takeGroup(_ signal: ReceivedSignal) async {
        let parts = signal.text.split(separator: " ", omittingEmptySubsequences: false)
        guard (1...2).contains(parts.count), let bytes = Base64.decode(parts[0].utf8),
            let reference = try? GroupReference(bytes), reference.holder == signal.device
        else { return }
        var blob: [UInt8]?
        if parts.count == 2 {
            guard let bytes = Base64.decode(parts[1].utf8) else { return }
            blob = bytes
        }
        guard let reply = try? await perform({ .readGroup(ticket: $0, reference, blob, hasKeys: false) }) else {
            return
        }
        guard case .keysNeeded(let users) = reply else { return groupReads.stop(reference) }
        // It is asked for again when their keys have come.
        for user in users { want(keysOf: user) }
    }

    // MARK: Answering

    private func answer(_ signal: ReceivedSignal) async {
        guard let bytes = Base64.decode(signal.text.utf8), let reference = try? GroupReference(bytes),
            reference.holder == deviceId.id,
            handedOver.withLock({ $0.isDue(reference.digest, for: signal.device, now: .now) })
        else { return }
        let blob = try? await engine.read { participants in
            var random = SystemRandomSource()
            return try? participants.blob(of: reference, for: signal.user, random: &random)
        }
        let parts = [signal.text] + [blob ?? nil].compactMap { $0.map(Base64.text) }
        try? await send(
            SignalJob(
                to: signal.user, device: signal.device, kind: Self.answerKind, text: parts.joined(separator: " "),
                lifetime: Self.answerLifetime))
    }
}
