import Foundation
import PeerKit

/// A picture of modules, and a decoder that is not ours to read it with.
struct Picture {
    /// Pixels along one side of a module.
    static let scale = 4

    let rows: [[Bool]]

    /// The rows of dark and light, any quiet zone among them.
    init(rows: [[Bool]]) {
        self.rows = rows
    }

    /// As PGM, of which the whole format is this header and a byte for each pixel.
    var pgm: Data {
        let width = (rows.first?.count ?? 0) * Self.scale
        var data = Data("P5 \(width) \(rows.count * Self.scale) 255\n".utf8)
        for row in rows {
            let line = row.flatMap { [UInt8](repeating: $0 ? 0 : 255, count: Self.scale) }
            for _ in 0..<Self.scale { data.append(contentsOf: line) }
        }
        return data
    }

    /// What zbarimg reads in it; nil when it finds no code.
    func decoded() throws -> [UInt8]? {
        let scratch = try ScratchDirectory()
        try pgm.write(to: URL(fileURLWithPath: scratch.file("code.pgm")))
        // its output is bytes, and goes around everything that would take them for text
        let command = "zbarimg --quiet --nodbus --raw --oneshot -Sbinary code.pgm > bytes"
        let child = try ChildProcess("sh", ["-c", command], workingDirectory: scratch.path)
        switch try child.waitForExit() {
        case .exited(0): return try [UInt8](Data(contentsOf: URL(fileURLWithPath: scratch.file("bytes"))))
        case .exited(4): return nil
        default: throw PeerError("zbarimg: \(child.stderr)")
        }
    }
}
