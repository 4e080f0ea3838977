/// The modules of one code. Function patterns are drawn first; codewords fill the remaining modules.
struct Matrix: Sendable {
    let size: Int
    private var dark: [Bool]
    private var reserved: [Bool]

    /// Draws the version's function patterns. The format's modules are only reserved, because its mask is not known
    /// yet.
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

    /// Sets a module permanently: neither codewords nor masks change it.
    mutating func reserve(_ row: Int, _ column: Int, dark isDark: Bool) {
        dark[row * size + column] = isDark
        reserved[row * size + column] = true
    }

    /// Places codewords, highest bit first, in columns of two from the lower right corner, alternately upwards and
    /// downwards. Column 6 is a timing pattern and belongs to no pair.
    mutating func place(_ codewords: [UInt8]) {
        var next = 0
        var upward = true
        for right in Array(stride(from: size - 1, to: 6, by: -2)) + [5, 3, 1] {
            for step in 0..<size {
                let row = upward ? size - 1 - step : step
                for column in [right, right - 1] where !isReserved(row, column) {
                    // Modules without a codeword stay light.
                    guard next < 8 * codewords.count else { return }
                    dark[row * size + column] = codewords[next / 8] << (next % 8) & 0x80 != 0
                    next += 1
                }
            }
            upward.toggle()
        }
    }

    /// Inverts the modules that the mask selects, except function patterns. Applying it twice restores them.
    mutating func apply(_ mask: Mask) {
        for row in 0..<size {
            for column in 0..<size where !isReserved(row, column) && mask.inverts(row, column) {
                dark[row * size + column].toggle()
            }
        }
    }
}
