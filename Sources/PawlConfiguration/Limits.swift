extension PawlConfiguration {
    /// The limits that an operator may move; the reason of each stands in the table of keys.
    package struct Limits: Sendable, Equatable {
        /// Clients connected at one time.
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
        /// Lines of one connection that are held while a bundle is fetched or a commit is under way.
        package var heldLines: Int
        /// Bytes of an HTTP backend's answer whose messages are opened.
        package var answerBytes: Int
    }
}
