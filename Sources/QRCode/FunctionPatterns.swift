/// The patterns that depend on the version only, not on the bytes.
extension Matrix {
    /// Draws all function patterns; later ones overwrite earlier ones.
    mutating func drawFunctionPatterns(_ version: Version) {
        drawTiming()
        for (row, column) in [(3, 3), (3, size - 4), (size - 4, 3)] { drawFinder(row, column) }
        let taken = [(6, 6), (6, size - 7), (size - 7, 6)]
        for row in version.alignmentCenters {
            for column in version.alignmentCenters where !taken.contains(where: { $0 == (row, column) }) {
                drawAlignment(row, column)
            }
        }
        drawFormat(nil)
        if version.isDrawn { drawVersion(version) }
    }

    /// Every other module of row 6 and column 6.
    private mutating func drawTiming() {
        for index in 0..<size {
            reserve(6, index, dark: index % 2 == 0)
            reserve(index, 6, dark: index % 2 == 0)
        }
    }

    /// Draws square rings around a centre and a light one outside them, as far as they lie in the code.
    private mutating func drawFinder(_ centerRow: Int, _ centerColumn: Int) {
        for row in max(0, centerRow - 4)...min(size - 1, centerRow + 4) {
            for column in max(0, centerColumn - 4)...min(size - 1, centerColumn + 4) {
                let ring = max(abs(row - centerRow), abs(column - centerColumn))
                reserve(row, column, dark: ring != 2 && ring != 4)
            }
        }
    }

    private mutating func drawAlignment(_ centerRow: Int, _ centerColumn: Int) {
        for row in centerRow - 2...centerRow + 2 {
            for column in centerColumn - 2...centerColumn + 2 {
                reserve(row, column, dark: max(abs(row - centerRow), abs(column - centerColumn)) != 1)
            }
        }
    }

    /// Draws the format twice: around the upper left finder, and split between the other two. Without a mask its
    /// modules are only reserved.
    mutating func drawFormat(_ mask: Mask?) {
        let bits = mask.map(BCHCode.format) ?? 0
        // Down column 8 and then to the left along row 8, both without the timing pattern.
        let down = (0...8).filter { $0 != 6 }.map { (row: $0, column: 8) }
        let left = (0...7).reversed().filter { $0 != 6 }.map { (row: 8, column: $0) }
        // From the right edge along row 8, and then down column 8 to the lower edge.
        let inward = (1...8).map { (row: 8, column: size - $0) }
        let lower = (1...7).reversed().map { (row: size - $0, column: 8) }
        for path in [down + left, inward + lower] {
            for (bit, module) in path.enumerated() {
                reserve(module.row, module.column, dark: bits >> bit & 1 == 1)
            }
        }
        // One module is always dark.
        reserve(size - 8, 8, dark: true)
    }

    /// Draws the version twice: left of the upper right finder, and mirrored above the lower left one.
    private mutating func drawVersion(_ version: Version) {
        let bits = BCHCode.version(version)
        for bit in 0..<18 {
            let isDark = bits >> bit & 1 == 1
            reserve(bit / 3, size - 11 + bit % 3, dark: isDark)
            reserve(size - 11 + bit % 3, bit / 3, dark: isDark)
        }
    }
}
