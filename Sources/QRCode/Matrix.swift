/// The modules of one code. Function patterns stand from the start; codewords go where they leave room.
struct Matrix: Sendable {
    let size: Int
    private var dark: [Bool]
    private var reserved: [Bool]

    /// Draws the version's function patterns. The format waits until its mask is known; its place is kept.
    init(_ version: Version) {
        size = version.size
        dark = Array(repeating: false, count: size * size)
        reserved = dark
        drawFunctionPatterns(version)
    }

    /// Whether a module is dark.
    subscript(row: Int, column: Int) -> Bool {
        dark[row * size + column]
    }

    /// Whether a module belongs to a function pattern.
    func isReserved(_ row: Int, _ column: Int) -> Bool {
        reserved[row * size + column]
    }

    /// Sets a module for good: neither codewords nor masks touch it.
    mutating func reserve(_ row: Int, _ column: Int, dark isDark: Bool) {
        dark[row * size + column] = isDark
        reserved[row * size + column] = true
    }

    /// Places codewords, the highest bit first, on a path in columns of two from the lower right corner, up and down in
    /// turns. Column 6 is a timing pattern and belongs to no pair.
    mutating func place(_ codewords: [UInt8]) {
        var next = 0
        var upward = true
        for right in Array(stride(from: size - 1, to: 6, by: -2)) + [5, 3, 1] {
            for step in 0..<size {
                let row = upward ? size - 1 - step : step
                for column in [right, right - 1] where !isReserved(row, column) {
                    // what no codeword reaches stays light
                    guard next < 8 * codewords.count else { return }
                    dark[row * size + column] = codewords[next / 8] << (next % 8) & 0x80 != 0
                    next += 1
                }
            }
            upward.toggle()
        }
    }

    /// Inverts what the mask says, except function patterns. A second time takes it back.
    mutating func apply(_ mask: Mask) {
        for row in 0..<size {
            for column in 0..<size where !isReserved(row, column) && mask.inverts(row, column) {
                dark[row * size + column].toggle()
            }
        }
    }
}
