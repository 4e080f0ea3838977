/// One of the eight patterns that invert codewords, so that a code has no large plain areas.
struct Mask: Equatable, Sendable {
    /// From 0 to 7, as in the format.
    let number: Int

    static let all = (0..<8).map(Mask.init)

    /// Whether the mask inverts a module.
    func inverts(_ row: Int, _ column: Int) -> Bool {
        let product = row * column
        return switch number {
        case 0: (row + column) % 2 == 0
        case 1: row % 2 == 0
        case 2: column % 3 == 0
        case 3: (row + column) % 3 == 0
        case 4: (row / 2 + column / 3) % 2 == 0
        case 5: product % 2 + product % 3 == 0
        case 6: (product % 2 + product % 3) % 2 == 0
        default: ((row + column) % 2 + product % 3) % 2 == 0
        }
    }
}
