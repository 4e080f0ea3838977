/// The identity of one client's socket while this process lives.
@usableFromInline
package struct ConnectionID: Hashable, Sendable {
    package let value: UInt64
    package init(_ value: UInt64) { self.value = value }
}
