/// Arrays for public bytes that are put together to be authenticated, used again so that a message needs no new one.
package enum Scratch {
    /// A larger one is not kept.
    private static let largestKept = 4096
    private static let pool = Pool<[UInt8]>()

    /// An empty array, on loan.
    package static func take() -> [UInt8] {
        pool.take() ?? []
    }

    /// Ends the loan. An array that is not given back is lost to the next, and nothing else.
    package static func giveBack(_ array: inout [UInt8]) {
        var returned: [UInt8] = []
        swap(&returned, &array)
        guard returned.capacity <= largestKept else { return }
        returned.removeAll(keepingCapacity: true)
        pool.giveBack(returned)
    }
}
