/// What went wrong with a peer, in words for the person who reads the test's output.
package struct PeerError: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}
