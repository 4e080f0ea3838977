// The device of a client behind a gateway in front: challenged, proven, and withdrawn when the account changes or the
// directory no longer has it.

import DeviceDirectory
import Envelope
import IRCCodec
import NIOCore
import Protection
import RequestQueue

/// The machine of the client's own device on one connection.
final class ClientDevice {
    /// Ours: queries to the directory in a minute. Each consumes a one-time prekey.
    static let questionLimit = 240
    static let questionPeriod: Int64 = 60_000_000_000
    /// Ours: senders of whom the client has had a notice; it gets no notice for later ones.
    static let noticeLimit = 1000

    private enum Proof {
        /// The client has not been challenged for its current account.
        case none
        /// The nonce that the next proof has to sign.
        case challenged(nonce: [UInt8])
        /// The nonce is valid for another proof of the same account.
        case proven(DeviceID, nonce: [UInt8])
        /// The device that was proven has been removed from the directory since. The nonce is valid for another proof.
        case removed(DeviceID, nonce: [UInt8])
    }

    private let directory: DirectoryCache
    private var proof = Proof.none
    private var frames = ControlFrames()
    private var questions = 0
    private var questionsSince: Int64 = 0
    /// The original lines of incomplete envelopes, in case the client has to open them.
    private var fragments: [FragmentAssembler.Key: [ByteBuffer]] = [:]
    /// Accounts whose conversation with this connection's account is known to be end-to-end.
    private var protected: Set<AccountID> = []
    /// Senders for which this connection, which has no device, has had the notice.
    private var notified: Set<ExactText> = []

    init(_ directory: DirectoryCache) { self.directory = directory }

    // MARK: Proof

    /// The device that this connection has proven.
    var id: DeviceID? {
        if case .proven(let device, _) = proof { device } else { nil }
    }

    /// The device that the connection had proven, if it was removed from the directory since.
    var removed: DeviceID? {
        if case .removed(let device, _) = proof { device } else { nil }
    }

    /// The nonce that a proof has to sign; nil before the challenge.
    var nonce: [UInt8]? {
        switch proof {
        case .none: nil
        case .challenged(let nonce), .proven(_, let nonce), .removed(_, let nonce): nonce
        }
    }

    /// The connection has another account: nothing of the earlier one counts.
    func accountChanged() {
        proof = .none
        frames = ControlFrames()
        (questions, questionsSince) = (0, 0)
        fragments = [:]
        protected = []
        notified = []
    }

    /// The device has to be proven again.
    func withdraw() {
        if case .proven(_, let nonce) = proof { proof = .challenged(nonce: nonce) }
    }

    /// Withdraws the device if it was removed from the directory: by the operator, or by another device of the account.
    ///
    /// - Returns: whether it was.
    func withdrawIfRemoved(of account: AccountID) -> Bool {
        guard case .proven(let device, let nonce) = proof, !directory.publishes(device, by: account) else {
            return false
        }
        proof = .removed(device, nonce: nonce)
        return true
    }

    /// The client has been challenged.
    func challenged(nonce: [UInt8]) {
        switch proof {
        case .none, .challenged: proof = .challenged(nonce: nonce)
        case .proven(let device, _): proof = .proven(device, nonce: nonce)
        case .removed(let device, _): proof = .removed(device, nonce: nonce)
        }
    }

    /// The directory has accepted a proof.
    ///
    /// - Returns: false if it was for an earlier account of the connection, so that it does not count.
    func proved(_ device: DeviceID) -> Bool {
        switch proof {
        case .none: return false
        case .challenged(let nonce), .proven(_, let nonce), .removed(_, let nonce):
            proof = .proven(device, nonce: nonce)
            return true
        }
    }

    // MARK: Control plane

    /// Adds a frame of the control plane.
    func take(_ line: IRCLine, now: Int64) -> ControlFrames.Outcome { frames.take(line, now: now) }

    /// Whether the client may send another request; counts it.
    func mayAsk(now: Int64) -> Bool {
        if questionsSince + Self.questionPeriod <= now { (questions, questionsSince) = (0, now) }
        questions += 1
        return questions <= Self.questionLimit
    }

    // MARK: Envelopes

    /// Whether one of the accounts has published the device that sealed an envelope.
    func isFromDevice(_ envelope: [UInt8], of accounts: @autoclosure () -> [AccountID]) -> Bool {
        guard !directory.isEmpty, let (_, sender) = Envelope.claim(of: envelope) else { return false }
        return accounts().contains { directory.publishes(sender, by: $0) }
    }

    /// Notes a conversation in which both ends use their own devices; true the first time.
    func protects(_ account: AccountID) -> Bool { protected.insert(account).inserted }

    /// Whether the notice that a sender's messages are for another device is due; true once for each sender.
    func isNoticeDue(of sender: String) -> Bool {
        notified.count < Self.noticeLimit && notified.insert(ExactText(sender)).inserted
    }

    /// Keeps a line of an incomplete envelope, in case the client has to open it.
    ///
    /// - Parameter isIncomplete: whether more of an envelope is expected; the lines of the others are dropped.
    func keep(_ raw: ByteBuffer, of envelope: FragmentAssembler.Key, isIncomplete: (FragmentAssembler.Key) -> Bool) {
        if fragments[envelope] == nil { dropFragments(unless: isIncomplete) }
        fragments[envelope, default: []].append(raw)
    }

    /// Removes and returns the lines of an envelope.
    func takeFragments(of envelope: FragmentAssembler.Key) -> [ByteBuffer] {
        fragments.removeValue(forKey: envelope) ?? []
    }

    /// Removes the lines of envelopes of which no more is expected.
    func dropFragments(unless isIncomplete: (FragmentAssembler.Key) -> Bool) {
        fragments = fragments.filter { isIncomplete($0.key) }
    }
}
