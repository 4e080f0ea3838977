// Time is an argument everywhere on this floor.

/// A point in time as the runner of a machine tells it.
package struct Moment: Sendable, Equatable {
    /// For intervals; never goes back. In nanoseconds from an arbitrary start.
    package var monotonic: Int64
    /// For people and rows. In milliseconds since 1970.
    package var wall: Int64

    package init(monotonic: Int64, wall: Int64) {
        (self.monotonic, self.wall) = (monotonic, wall)
    }
}
