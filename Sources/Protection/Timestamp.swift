// Time is an argument throughout the protocol and logic targets.

/// A point in time, as passed to the machines.
@usableFromInline
package struct Timestamp: Sendable, Equatable {
    /// For intervals; never decreases. In nanoseconds from an arbitrary start.
    package var monotonic: Int64
    /// For people and rows. In milliseconds since 1970.
    package var wall: Int64

    package init(monotonic: Int64, wall: Int64) {
        (self.monotonic, self.wall) = (monotonic, wall)
    }
}
