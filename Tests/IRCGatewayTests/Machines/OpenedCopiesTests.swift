import DoubleRatchet
import Envelope
import Protection
import Testing

@testable import IRCGateway

/// Opened messages that are kept for other connections, alone.
@Suite struct OpenedCopiesTests {
    private var copies = OpenedCopies()

    private func key(_ number: Int) -> OpenedCopies.Key {
        OpenedCopies.Key(sender: DeviceID(1), message: MessageID(UInt64(number)), recipient: .services("bob"))
    }

    private mutating func put(_ number: Int) {
        let opened = Opened(body: Body(text: [1]), sender: .services("alice"), gap: 0)
        copies.put(
            OpenedMessage(
                ratchetMessage: [], origin: [], opened: opened, sequences: [:], shownTo: [], audience: nil),
            for: key(number))
    }

    @Test mutating func theOldestHalfIsRemoved() {
        for number in 1..<OpenedCopies.limit * 2 { put(number) }
        #expect(copies[key(1)] != nil)
        put(OpenedCopies.limit * 2)
        #expect(copies[key(OpenedCopies.limit)] == nil && copies[key(OpenedCopies.limit + 1)] != nil)
    }

    /// An envelope whose unit was rolled back is opened again, and is then as new as that.
    @Test mutating func aMessageThatWasRolledBackHasNoPlaceInTheOrder() {
        put(0)
        copies.remove(key(0))
        #expect(copies[key(0)] == nil)
        for number in 1...OpenedCopies.limit { put(number) }
        put(0)
        for number in OpenedCopies.limit + 1..<OpenedCopies.limit * 2 { put(number) }
        #expect(copies[key(1)] == nil)
        #expect(copies[key(0)] != nil, "it was put after those that are removed")
    }

    @Test mutating func aMessageOpenedTwiceHasOnePlace() {
        for _ in 0..<OpenedCopies.limit * 2 { put(0) }
        #expect(copies[key(0)] != nil)
    }
}
