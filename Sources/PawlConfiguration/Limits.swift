extension PawlConfiguration {
    /// The limits that an operator can change. The table of keys has the reason for each.
    package struct Limits: Sendable, Equatable {
        /// Clients that are connected at one time.
        package var connections: Int
        /// Lines that one sealed message may take.
        package var messageFragments: Int
        /// How long an incomplete envelope waits for its next line.
        package var fragmentTimeout: Duration
        /// Requests of one account that wait for the backend.
        package var pendingRequestsPerAccount: Int
        /// How long a request may wait before it is declared dead.
        package var requestAge: Duration
        /// Rows of evidence about clients in the store.
        package var evidenceRows: Int
        /// Lines of one connection that are held while the gateway fetches a bundle or waits for a commit.
        package var heldLines: Int
        /// The largest answer of an HTTP backend whose messages are opened, in bytes.
        package var answerBytes: Int
        /// The memory for all bodies that an HTTP gateway collects at one time, in bytes.
        package var collectedBytes: Int
        /// Answers whose messages are opened and that are longer than this are compressed, in bytes; 0 for none.
        package var compressAbove: Int
        /// Relays between devices of one account at the same time; 0 turns relays off.
        package var relaysPerAccount: Int
        /// Bytes in a second that a device may send over one relay.
        package var relayBytesPerSecond: Int
        /// How long a relay without bytes stays open.
        package var relayIdle: Duration
    }
}
