/// Reusable arrays for public bytes to authenticate, so that a message needs no new one.
package enum Scratch {
    /// Larger arrays are not kept.
    private static let largestKept = 4096
    private static let pool = Pool<[UInt8]>()

    /// Takes an empty array, to be returned by ``giveBack(_:)``.
    package static func take() -> [UInt8] {
        pool.take() ?? []
    }

    /// Returns an array. One that is not returned cannot be reused; nothing else is lost.
    package static func giveBack(_ array: inout [UInt8]) {
        var returned: [UInt8] = []
        swap(&returned, &array)
        guard returned.capacity <= largestKept else { return }
        returned.removeAll(keepingCapacity: true)
        pool.giveBack(returned)
    }
}
