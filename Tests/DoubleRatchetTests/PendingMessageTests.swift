import DoubleRatchet
import Testing

/// Encrypt, store, send: a message gives its bytes only against the state that encrypted it, or a later one.
@Suite struct PendingMessageTests {
    private let text = Array("text".utf8)
    private let data = Array("data".utf8)

    private func record(_ random: inout SystemRandomSource) throws -> SessionRecord {
        let bob = IdentityKeyPair(random: &random)
        var preKeys = PreKeyStore()
        var changes: [PreKeyChange] = []
        let bundle = preKeys.bundleForOne(identity: bob, at: 1_800_000_000_000, random: &random, &changes)
        let alice = IdentityKeyPair(random: &random)
        return SessionRecord(
            try Session.initiate(identity: alice, with: bundle, expecting: bob.publicKey, random: &random))
    }

    private func encrypt(_ record: inout SessionRecord, _ random: inout SystemRandomSource) throws -> PendingMessage {
        try record.encrypt(text.span, associatedData: data.span, random: &random)
    }

    private func refusal(_ message: consuming PendingMessage, after states: CommittedState...) -> RatchetError? {
        do throws(RatchetError) {
            _ = try message.bytes(after: states)
            return nil
        } catch {
            return error
        }
    }

    @Test func theStateThatEncryptedItLetsItOut() throws {
        var random = SystemRandomSource()
        var record = try record(&random)
        let message = try encrypt(&record, &random)
        let count = message.count
        let bytes = try message.bytes(after: record.uncommittedState().committed())
        #expect(bytes.count == count)
    }

    @Test func oneStateLetsOutAllMessagesBeforeIt() throws {
        var random = SystemRandomSource()
        var record = try record(&random)
        let first = try encrypt(&record, &random)
        let second = try encrypt(&record, &random)
        let state = record.uncommittedState().committed()
        let (one, other) = (try first.bytes(after: state), try second.bytes(after: state))
        #expect(one != other)
    }

    @Test func anEarlierStateDoesNot() throws {
        var random = SystemRandomSource()
        var record = try record(&random)
        let before = record.uncommittedState().committed()
        let message = try encrypt(&record, &random)
        #expect(refusal(message, after: before) == .notCommitted)
    }

    @Test func noStateDoesNot() throws {
        var random = SystemRandomSource()
        var record = try record(&random)
        let message = try encrypt(&record, &random)
        #expect(refusal(message) == .notCommitted)
    }

    @Test func theStateOfAnotherSessionDoesNot() throws {
        var random = SystemRandomSource()
        var other = try record(&random)
        var record = try record(&random)
        let message = try encrypt(&record, &random)
        _ = try encrypt(&other, &random)
        #expect(refusal(message, after: other.uncommittedState().committed()) == .notCommitted)
    }

    /// The message was never stored, and the state that was read back encrypts another one under the same key.
    @Test func aStateThatWasReadAgainDoesNot() throws {
        var random = SystemRandomSource()
        var record = try record(&random)
        var stored: [UInt8] = []
        record.serialize(into: &stored)
        let message = try encrypt(&record, &random)
        var restored = try SessionRecord(serialized: stored.span)
        let another = try encrypt(&restored, &random)
        let state = restored.uncommittedState().committed()
        #expect(refusal(message, after: state) == .notCommitted)
        #expect(refusal(another, after: state) == nil)
    }

    @Test func theUncommittedStateIsTheSerializedOne() throws {
        var random = SystemRandomSource()
        let record = try record(&random)
        var expected: [UInt8] = []
        record.serialize(into: &expected)
        let state = record.uncommittedState()
        let bytes = state.withBytes { span in span.withUnsafeBytes { Array($0) } }
        #expect(bytes == expected)
    }

    @Test func aSenderKeyIsNoException() throws {
        var random = SystemRandomSource()
        var key = SenderKey(random: &random)
        let before = key.uncommittedState().committed()
        let refused = try key.encrypt(text.span, associatedData: data.span)
        #expect(refusal(refused, after: before) == .notCommitted)
        let message = try key.encrypt(text.span, associatedData: data.span)
        let bytes = try message.bytes(after: key.uncommittedState().committed())
        #expect(try SenderKeyMessage(headerOf: bytes.span).iteration == 1)
    }

    /// One body for two devices leaves when both sessions are stored.
    @Test func allSessionsOfAMessageForSeveralHaveToBeStored() throws {
        var random = SystemRandomSource()
        var one = try record(&random)
        var other = try record(&random)
        func message() throws -> PendingMessage {
            var sealer = MultiRecipientSealer(text.span, associatedData: data, random: &random)
            try sealer.add(1, &one, associatedData: data, random: &random)
            try sealer.add(2, &other, associatedData: data, random: &random)
            return sealer.pendingMessage()
        }
        let refused = try message()
        #expect(refusal(refused, after: one.uncommittedState().committed()) == .notCommitted)
        let bytes = try message().bytes(
            after: one.uncommittedState().committed(), other.uncommittedState().committed())
        #expect(try MultiRecipientMessage(serialized: bytes.span).keys.map(\.recipient) == [1, 2])
    }
}
