package io.uplake.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.SplittableRandom;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.Scorer;
import org.apache.lucene.search.TermInSetQuery;
import org.apache.lucene.search.Weight;
import org.apache.lucene.store.MMapDirectory;
import org.apache.lucene.util.BytesRef;

/**
 * How long do 10,000 ids take to become a set of documents, in Lucene?
 *
 * <p>The shapes are those of crates/postings/benches/postings.rs: the same ids, run lengths and
 * windows, so the same number of documents is found within a per mille. It is Lucene's best case:
 * one segment, no deleted documents, no cache of queries, everything in the page cache, and 100
 * query sets that take turns. Arguments: directory for the indexes, seconds a shape, shapes.
 */
public final class TermInSet {
  private static final int IDS = 10_000;
  private static final int SETS = 100;
  private static final int LOCAL_WINDOW = 20_000;
  private static final String FIELD = "id";

  enum Rows { FIXED, ZIPF, RANDOM }

  record Shape(String name, int rows, Rows kind, boolean local) {
    /** What the index of a shape is called: query windows do not matter to it. */
    String index() {
      return kind + "-" + rows;
    }
  }

  private static final List<Shape> SHAPES = List.of(
      new Shape("10M-local", 10_000_000, Rows.FIXED, true),
      new Shape("10M-scatter", 10_000_000, Rows.FIXED, false),
      new Shape("10M-zipf", 10_000_000, Rows.ZIPF, false),
      new Shape("10M-random", 10_000_000, Rows.RANDOM, false),
      new Shape("100M-local", 100_000_000, Rows.FIXED, true),
      new Shape("100M-scatter", 100_000_000, Rows.FIXED, false));

  /** SplitMix64's output function, with its step. */
  private static long mix(long z) {
    z += 0x9E3779B97F4A7C15L;
    z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return z ^ (z >>> 31);
  }

  /** The id of a merchant: 10 digits, in no order. */
  private static long id(int merchant) {
    int h = merchant;
    h = (h ^ (h >>> 16)) * 0x85ebca6b;
    h = (h ^ (h >>> 13)) * 0xc2b2ae35;
    return 1_000_000_000L + Integer.toUnsignedLong(h ^ (h >>> 16));
  }

  private static BytesRef term(int merchant) {
    return new BytesRef(Long.toString(id(merchant)));
  }

  private static int length(Rows kind, int merchant) {
    long x = mix(merchant ^ 0x5eed5eedL) >>> 11;
    if (kind == Rows.ZIPF) {
      return (int) Math.min(10.0 / ((x + 1) / (double) (1L << 53)), 100_000.0);
    }
    return 50 + (int) (x % 101);
  }

  /** Writes the index of a shape, unless it is there; gives the number of its merchants. */
  private static int write(Shape shape, Path directory) throws Exception {
    Path done = directory.resolveSibling(directory.getFileName() + ".merchants");
    if (Files.exists(done)) {
      return Integer.parseInt(Files.readString(done).strip());
    }
    int merchants = 0;
    IndexWriterConfig config = new IndexWriterConfig()
        .setOpenMode(IndexWriterConfig.OpenMode.CREATE)
        .setRAMBufferSizeMB(512)
        .setUseCompoundFile(false);
    try (IndexWriter writer = new IndexWriter(new MMapDirectory(directory), config)) {
      Document document = new Document();
      StringField field = new StringField(FIELD, term(0), Field.Store.NO);
      document.add(field);
      if (shape.kind == Rows.RANDOM) {
        merchants = shape.rows / 100;
        for (int row = 0; row < shape.rows; row++) {
          int merchant = (int) Long.remainderUnsigned(mix(row ^ 0xdeadL), merchants);
          field.setBytesValue(term(merchant));
          writer.addDocument(document);
        }
      } else {
        for (int row = 0; row < shape.rows; merchants++) {
          field.setBytesValue(term(merchants));
          int end = (int) Math.min((long) row + length(shape.kind, merchants), shape.rows);
          for (; row < end; row++) {
            writer.addDocument(document);
          }
        }
      }
      writer.forceMerge(1);
    }
    Files.writeString(done, merchants + "\n");
    return merchants;
  }

  /** Draws the terms of each query set, without repetition. */
  private static List<List<BytesRef>> querySets(Shape shape, int merchants) {
    SplittableRandom random = new SplittableRandom(22);
    List<List<BytesRef>> sets = new ArrayList<>();
    for (int set = 0; set < SETS; set++) {
      int window = shape.local ? LOCAL_WINDOW : merchants;
      int first = random.nextInt(merchants - window + 1);
      Set<Integer> seen = new HashSet<>();
      List<BytesRef> terms = new ArrayList<>();
      while (terms.size() < IDS) {
        int merchant = first + random.nextInt(window);
        if (seen.add(merchant)) {
          terms.add(term(merchant));
        }
      }
      sets.add(terms);
    }
    return sets;
  }

  /** Processor time and time on the wall, in microseconds. */
  private static final class Times {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private double[] cpu = new double[1024];
    private double[] wall = new double[1024];
    private int count;
    private long cpuStart;
    private long wallStart;

    void start() {
      wallStart = System.nanoTime();
      cpuStart = THREADS.getCurrentThreadCpuTime();
    }

    void stop() {
      long cpuEnd = THREADS.getCurrentThreadCpuTime();
      long wallEnd = System.nanoTime();
      if (count == cpu.length) {
        cpu = Arrays.copyOf(cpu, 2 * count);
        wall = Arrays.copyOf(wall, 2 * count);
      }
      cpu[count] = (cpuEnd - cpuStart) / 1e3;
      wall[count++] = (wallEnd - wallStart) / 1e3;
    }

    /** Forgets the first half: the compiler was at work. */
    String row(String shape, String what, long found) {
      double[] cpu = Arrays.copyOfRange(this.cpu, count / 2, count);
      double[] wall = Arrays.copyOfRange(this.wall, count / 2, count);
      Arrays.sort(cpu);
      Arrays.sort(wall);
      int last = cpu.length - 1;
      return String.format(Locale.ROOT, "| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %d | %d |",
          shape, what, cpu[last / 2], cpu[last * 99 / 100], wall[last / 2], wall[last * 99 / 100],
          wall[0], cpu.length, found);
    }
  }

  private static void measure(Shape shape, Path root, double seconds) throws Exception {
    Path directory = root.resolve(shape.index());
    int merchants = write(shape, directory);
    List<List<BytesRef>> sets = querySets(shape, merchants);
    try (DirectoryReader reader = DirectoryReader.open(new MMapDirectory(directory))) {
      IndexSearcher searcher = new IndexSearcher(reader);
      searcher.setQueryCache(null);
      Times build = new Times();
      Times all = new Times();
      long found = 0;
      long end = System.nanoTime() + (long) (seconds * 1e9);
      for (int round = 0; round < 40 || System.nanoTime() < end; round++) {
        List<BytesRef> terms = sets.get(round % SETS);
        // Building the set, and building it and walking over its documents, take turns.
        boolean walk = round / SETS % 2 == 1 || round % 2 == 1;
        Times times = walk ? all : build;
        times.start();
        Query query = searcher.rewrite(new TermInSetQuery(FIELD, terms));
        Weight weight = searcher.createWeight(query, ScoreMode.COMPLETE_NO_SCORES, 1);
        Scorer scorer = weight.scorer(reader.leaves().get(0));
        DocIdSetIterator documents = scorer.iterator();
        long count = 0;
        if (walk) {
          while (documents.nextDoc() != DocIdSetIterator.NO_MORE_DOCS) {
            count++;
          }
        }
        times.stop();
        found = Math.max(found, count);
      }
      System.out.println(build.row(shape.name, "set of documents", found));
      System.out.println(all.row(shape.name, "the same, and every document", found));
      System.out.flush();
    }
  }

  public static void main(String[] arguments) throws Exception {
    Path root = Path.of(arguments[0]);
    double seconds = Double.parseDouble(arguments[1]);
    Set<String> wanted = new HashSet<>(Arrays.asList(arguments).subList(2, arguments.length));
    Files.createDirectories(root);
    for (Shape shape : SHAPES) {
      if (wanted.isEmpty() || wanted.contains(shape.name)) {
        measure(shape, root, seconds);
      }
    }
  }
}
